"""The page that the Hugging Face Hub shows for a model: made from its configuration and result rows."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from sightline.results.rows import ResultRow


def model_card(record: Mapping[str, Any], repository: str, rows: Sequence[ResultRow] = ()) -> str:
    """A model card in Markdown with the Hub's metadata before it.

    Args:
        record: the `config.json` of a model's folder.
        repository: "owner/name", for the lines that show how to load it.
        rows: what was measured with it; those of all images are cited.
    """
    from jinja2 import Environment, StrictUndefined

    model = {**record["architecture"], **record["head"], **record["preparation"]}
    cited = [row for row in rows if not row.slices]
    side = model["image_size"]
    height, width = (side, side) if isinstance(side, int) else side
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_file("model_card.md")).render(
        record=record,
        model=model,
        training=record.get("training", {}).get("config"),
        repository=repository,
        name=repository.split("/")[-1],
        words=describe_encoding(model["encoding"]),
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


def describe_encoding(name: str) -> str:
    """One line on what an encoding does, of each part of a combined one; "" where nothing is known."""
    known = tomllib.loads(_file("encodings.toml"))
    parts = [[family for family in known if f"{part.strip()}_".startswith(family + "_")] for part in name.split("+")]
    return " And: ".join(known[max(families, key=len)] for families in parts if families)


@functools.cache
def _file(name: str) -> str:
    return files("sightline.hub").joinpath(name).read_text("utf-8")
