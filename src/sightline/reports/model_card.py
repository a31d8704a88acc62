"""The page that the Hugging Face Hub shows for a model: made from its configuration and result rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sightline.reports import page
from sightline.reports.explain import encoding_words
from sightline.results import ResultRow


def model_card(record: Mapping[str, Any], repository: str, rows: Sequence[ResultRow] = ()) -> str:
    """A model card in Markdown with the Hub's metadata before it.

    Args:
        record: the `config.json` of a model's folder.
        repository: "owner/name", for the lines that show how to load it.
        rows: what was measured with it; those of all images are cited.
    """
    model = {**record["architecture"], **record["head"], **record["preparation"]}
    cited = [row for row in rows if not row.slices]
    side = model["image_size"]
    height, width = (side, side) if isinstance(side, int) else side
    text = page.render(
        "model_card.md",
        record=record,
        model=model,
        training=record.get("training", {}).get("config"),
        repository=repository,
        name=repository.split("/")[-1],
        words=encoding_words(model["encoding"]),
        height=height,
        width=width,
        patch=model["patch_size"],
        rows=cited,
        sorted_rows=sorted(
            cited, key=lambda row: (row.data, row.split, row.metric, row.tuned, row.resolution or 0, row.view)
        ),
        quoted=json.dumps,
        numbers=lambda values: ", ".join(f"{value:g}" for value in values),
        cell=lambda text: str(text).replace("|", "\\|").replace("\n", " "),
    )
    return text.rstrip() + "\n"
