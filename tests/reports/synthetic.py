"""Made-up rows and reports for these tests: the numbers were measured nowhere."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from sightline.reports.content import FieldsOfViewFigure, LossCurve, Report, RunSummary, Sample
from sightline.reports.results_page import render
from sightline.reports.results_tables import print_accuracy
from sightline.reports.seen import loss_kind, training_sizes
from sightline.reports.tables import Table
from sightline.reports.words import TIMES
from sightline.results.rows import ResultRow
from tests.pages import Page

RESOLUTIONS = (20, 32, 64, 148)
VALUES: Mapping[str, Sequence[float]] = {
    "looker": (0.761, 0.938, 0.958, 0.895),
    "turner": (0.766, 0.943, 0.307, 0.055),
    "adder": (0.514, 0.655, 0.632, 0.390),
}


def row(run: str = "looker", value: float = 0.5, resolution: int | None = 32, **changes: Any) -> ResultRow:
    """A synthetic row of top-1 on the test split, of 400 images unless it is changed."""
    side = (resolution or 0) // 4
    fields: dict[str, Any] = {
        "run": run, "encoding": run, "task": "glyphs", "data": "scenes", "split": "test", "metric": "top1",
        "value": value, "unit": "fraction", "better": "higher", "resolution": resolution,
        "grid": (side, side), "train_resolution": 32, "knob": None, "tuned": False, "seed": 0,
        "count": 400, "seconds": 1.0, "commit": "0000000", "hardware": "synthetic",
    }  # fmt: skip
    return ResultRow(**{**fields, **changes})


def accuracy_rows(
    values: Mapping[str, Sequence[float]] = VALUES, sizes: Sequence[int] = RESOLUTIONS
) -> list[ResultRow]:
    return [row(run, value, size) for run, line in values.items() for size, value in zip(sizes, line, strict=True)]


def all_rows(values: Mapping[str, Sequence[float]] = VALUES) -> list[ResultRow]:
    """Synthetic rows of every metric, with held-out fonts."""
    rows = accuracy_rows(values)
    for base in list(rows):
        if base.resolution not in (32, 148):
            continue
        for number in range(1, 6):
            shifted = min(1.0, base.value * (0.8 + 0.05 * number))
            rows.append(row(base.run, shifted, base.resolution, slices={"size_quintile": number}, count=80))
        for place, group in enumerate(("bdpq", "E3")):
            rows.append(row(base.run, base.value * (0.9 + 0.05 * place), base.resolution, slices={"group": group}))
        rows.append(row(base.run, base.value * 0.99, base.resolution, metric="top1_within_group"))
        rows.append(row(base.run, base.value * 0.7, base.resolution, split="heldout_fonts"))
        rows.append(row(base.run, min(1.0, base.value + 0.017), base.resolution, metric="top5"))
    return rows


def picture(side: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def view(encoding: str = "looker", grid: tuple[int, int] = (3, 5), heads: int = 4) -> FieldsOfViewFigure:
    """Synthetic weights that fall with distance; half of the first head is masked."""
    y, x = np.mgrid[: grid[0], : grid[1]]
    distance = np.hypot(y - grid[0] // 2, x - grid[1] // 2)
    weight = np.stack([np.exp(-0.3 * (head + 1) * distance) for head in range(heads)]).astype(np.float32)
    weight[0, :, : grid[1] // 2] = 0
    return FieldsOfViewFigure(encoding, 0, grid, weight)


def run_summary(name: str = "looker", **changes: Any) -> RunSummary:
    fields: dict[str, Any] = {
        "name": name, "encoding": name, "knob": 0.5, "knob_name": "slope", "knob_default": 1.0, "parameters": 1_812_504,
        "train_images": 48_000, "train_seconds": 178.2, "evaluate_seconds": 61.0, "precision": "bf16",
        "config": {"encoding": name, "rate": 0.0015}, "loss": LossCurve([32, 64, 96], [3.0, 2.0, 1.5]),
        "about": f"Synthetic words about {name}.",
    }  # fmt: skip
    return RunSummary(**{**fields, **changes})


def full_report(**changes: Any) -> Report:
    """A synthetic report with every part present."""
    fields: dict[str, Any] = {
        "title": "Synthetic report", "command": "sightline demo --seed 7",
        "runs": [run_summary(name) for name in VALUES], "rows": all_rows(),
        "samples": {size: [Sample(picture(size, n), f"sample {n}") for n in range(2)] for size in (32, 64)},
        "fields": [view()], "seconds_total": 512.3, "hardware": "synthetic cores", "commit": "abc1234",
        "created": "2020-02-02", "notes": ["a synthetic note"], "other_commands": ["sightline report runs/x"],
    }  # fmt: skip
    return Report(**{**fields, **changes})


FIXED = {"data": "scenes", "resolution": 64, "images": 48_000, "loss": "bce", "precision": "bf16"}
PACKING = {"tokens": 2048, "resolutions": [32, 96], "aspect": "native", "drop": None, "drop_options": {}}
# What is saved of runs of each kind.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "uniform": FIXED,
    "packed": {**FIXED, "packing": PACKING, "loss": "ce", "label_smoothing": 0.1},
    "mixed": {**FIXED, "packing": {**PACKING, "resolutions": [16, 64], "aspect": "square"}},
    "dropped": {**FIXED, "packing": {**PACKING, "drop": "constant", "drop_options": {"drop": 0.25}}},
    "own": {**FIXED, "packing": {**PACKING, "resolutions": None, "most_tokens": 256}},
    "parts": {**FIXED, "parts": 0.35},
    "tuned": {**FIXED, "init_from": "timm:vit_of_another"},
}


def run_of(kind: str, **changes: Any) -> RunSummary:
    """A made-up run of 4 px patches and 24 classes, as its configuration says it was trained."""
    config = CONFIGS[kind]
    fields = {
        "encoding": "lookhere_90", "config": config, "seen": training_sizes(config, 4),
        "loss": LossCurve([32, 64], [3.0, 2.0], loss_kind(config, 24)), "about": "",
    }  # fmt: skip
    return run_summary(kind, **{**fields, **changes})


def page_of(*kinds: str, values: Mapping[str, Sequence[float]] | None = None, **changes: Any) -> Report:
    """A report on runs of these kinds, each measured at 32, 64, 96 and 128 px unless `values` say otherwise."""
    sizes = (32, 64, 96, 128)
    values = values or {kind: (0.8, 0.9, 0.7, 0.5 + 0.1 * place) for place, kind in enumerate(kinds)}
    rows = [
        row(kind, value, size, encoding="lookhere_90", train_resolution=64)
        for kind, line in values.items()
        for size, value in zip(sizes, line, strict=True)
    ]
    fields: dict[str, Any] = {"runs": [run_of(kind) for kind in kinds], "rows": rows, "chance": 1 / 24}
    return Report(**{"title": "A page", "command": "sightline report", **fields, **changes})


def page(rows: Sequence[ResultRow], runs: Sequence[RunSummary] = (), **changes: Any) -> Page:
    """The page of some rows and little else."""
    return Page(render(Report("t", "c", runs, rows, **changes)))


def at(size: int) -> str:
    """The head of a size, with its patches of 4 px."""
    return f"{size} px {size // 4} {TIMES} {size // 4}"


def printed(rows: Sequence[ResultRow], width: int = 80, encoding: str = "utf-8", seen: Any = None) -> str:
    """What a terminal shows of rows."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    print_accuracy(rows, Console(file=stream, width=width), seen=seen)
    stream.flush()
    return raw.getvalue().decode(encoding)


def cells(table: Table | None) -> dict[tuple[str, str], str]:
    """(line, column) -> a value; what stands below a head follows it."""
    assert table is not None
    columns = [f"{head.name} {head.below}".strip() for head in table.columns]
    found = {
        (line.name, column): cell.value
        for line, some in table.lines
        for column, cell in zip(columns, some, strict=True)
    }
    return {(line.replace("\xa0", " "), column.replace("\xa0", " ")): value for (line, column), value in found.items()}


def texts(svg: str) -> list[str]:
    """All text of a figure; fails where it is not well-formed XML."""
    name = "{http://www.w3.org/2000/svg}text"
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(name)]
