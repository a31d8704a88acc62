"""The page that the Hugging Face Hub shows for a model: made from its configuration and result rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sightline.reports.explain import encoding_words
from sightline.results import ResultRow

_CITED = ("top1", "top5")


def model_card(record: Mapping[str, Any], repository: str, rows: Sequence[ResultRow] = ()) -> str:
    """A model card in Markdown with the Hub's metadata before it.

    Args:
        record: the `config.json` of a model's folder.
        repository: "owner/name", for the lines that show how to load it.
        rows: what was measured with it.
    """
    return "\n\n".join([_metadata(record, repository, rows), *_text(record, repository), *_results(rows)]) + "\n"


def _metadata(record: Mapping[str, Any], repository: str, rows: Sequence[ResultRow]) -> str:
    lines = ["---", "library_name: sightline", "pipeline_tag: image-classification", "tags:"]
    lines += [f"- {tag}" for tag in ("vision-transformer", "image-classification", "sightline")]
    lines += [f"- {json.dumps(part)}" for part in record["architecture"]["encoding"].split("+")]
    cited = [row for row in rows if row.metric in _CITED and not row.slices]
    if cited:
        lines += ["model-index:", f"- name: {json.dumps(repository.split('/')[-1])}", "  results:"]
    for row in cited:
        name = json.dumps(f"{row.data} {row.split}, {f'{row.resolution} px' if row.resolution else row.view}")
        lines += [
            "  - task:",
            "      type: image-classification",
            "    dataset:",
            f"      name: {name}",
            f"      type: {json.dumps(row.data)}",
            "    metrics:",
            f"    - type: {row.metric}",
            f"      value: {row.value:.6g}",
        ]
    return "\n".join([*lines, "---"])


def _text(record: Mapping[str, Any], repository: str) -> list[str]:
    model = {**record["architecture"], **record["head"], **record["preparation"]}
    image_size = model["image_size"]
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    patch, classes = model["patch_size"], model["num_classes"]
    facts = [
        ("Layers, width, heads", f"{model['depth']}, {model['dim']}, {model['heads']}"),
        ("Patches", f"{patch} x {patch} pixels"),
        ("Trained at", f"{height} x {width} pixels ({height // patch} x {width // patch} patches)"),
        ("Position encoding", _options(model["encoding"], model["encoding_options"])),
        ("Pooling", model["pool"]),
        ("Classes", str(classes) if classes else "none: it gives features"),
        ("Mean, standard deviation", f"{_numbers(model['mean'])}; {_numbers(model['std'])}"),
        ("Resize, crop", f"{model['interpolation']}, {model['crop']:g} of the shorter side"),
    ]
    if record.get("knob") is not None:
        facts.append(("Extrapolation parameter", f"{record['knob']:g}"))
    origin = record.get("origin")
    if origin:
        facts.append(("Imported from", f"{origin['project']}: `{json.dumps(origin['config'])}`"))
    training = record.get("training", {}).get("config")
    if training:
        facts.append(("Trained on", f"{training.get('data')}, {training.get('images')} images"))
    table = "\n".join(["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in facts)])
    words = encoding_words(model["encoding"])
    return [
        f"# {repository.split('/')[-1]}",
        "A plain vision transformer that runs at any resolution and aspect ratio."
        + (f" Its position encoding: {words[0].lower()}{words[1:]}" if words else ""),
        table,
        "## How to use it",
        "```python\n"
        "import sightline\n\n"
        f'model = sightline.load_model("hf-hub:{repository}")\n'
        "prepare = sightline.preprocessing(model)\n"
        'logits = model([prepare("photo.jpg", "native")])  # its own size and aspect ratio\n'
        "```",
        f"```sh\nsightline predict hf-hub:{repository} photo.jpg\n```",
    ]


def _options(name: str, options: Mapping[str, Any]) -> str:
    given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
    return f"{name} ({given})" if given else name


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _results(rows: Sequence[ResultRow]) -> list[str]:
    cited = [row for row in rows if row.metric in _CITED and not row.slices]
    if not cited:
        return []
    lines = ["| Data | Pixels | Metric | Value | Standard error | Images |", "|---|---:|---|---:|---:|---:|"]
    for row in sorted(
        cited, key=lambda row: (row.data, row.split, row.metric, row.tuned, row.resolution or 0, row.view)
    ):
        tuned = f", its parameter tuned to {row.knob:g}" if row.tuned and row.knob is not None else ""
        lines.append(
            f"| {_cell(row.data)} {row.split}{tuned} | {row.resolution or row.view} | {row.metric} | {row.value:.4f} "
            f"| {row.stderr:.4f} | {row.images} |"
        )
    return ["## Results", "\n".join(lines)]
