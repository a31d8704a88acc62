"""What the folder of a run says of itself, as the reports want it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError

if TYPE_CHECKING:
    from sightline.models import VisionTransformer
    from sightline.reports.content import FieldsOfView, Report, RunSummary, SampleRow
    from sightline.results import ResultRow

_SAMPLES_A_ROW = 8


def read_run(folder: Path) -> tuple[VisionTransformer, dict[str, Any], list[ResultRow]]:
    """The model, the record of its training and the measured rows of a run.

    Raises:
        InputError: the folder is no run, or was not measured.
    """
    from sightline.load import load_model, read_record
    from sightline.results import read_rows

    training = read_record(folder)["training"]
    if not training:
        raise InputError(f"{folder}: is a model without a record of its training, expected the folder of a run")
    rows = folder / "results.jsonl"
    if not rows.exists():
        raise InputError(f"{folder}: has no results.jsonl yet; run: sightline evaluate {folder}")
    measured = read_rows(rows)
    if not measured:
        raise InputError(f"{rows}: has no rows; run: sightline evaluate {folder}")
    return load_model(folder), training, measured


def _summary(folder: Path, model: VisionTransformer, training: dict[str, Any], rows: list[ResultRow]) -> RunSummary:
    from sightline.reports.content import LossCurve, RunSummary
    from sightline.training.log import LOG, read_log

    log = read_log(folder / LOG)
    knob = model.knob
    # Rows of one pass share its seconds.
    passes = {(row.split, row.view, row.resolution, row.tuned): row.seconds for row in rows}
    return RunSummary(
        name=rows[0].run,
        encoding=model.encoding.name,
        knob=knob.value if knob else None,
        knob_name=knob.name if knob else None,
        knob_default=knob.default if knob else None,
        parameters=training["parameters"],
        train_images=training["config"]["images"],
        train_seconds=training["seconds"],
        evaluate_seconds=sum(passes.values()),
        precision=training["config"]["precision"],
        config=training["config"],
        loss=LossCurve([line["images"] for line in log], [line["loss"] for line in log]),
    )


def _samples(data: str, resolutions: Sequence[int]) -> list[SampleRow]:
    from sightline.data.discovery import open_source
    from sightline.reports.content import Sample, SampleRow

    source = open_source(data)
    split = "test" if "test" in source.splits else source.splits[0]
    length = source.length(split)
    indices = range(_SAMPLES_A_ROW if length is None else min(_SAMPLES_A_ROW, length))
    rows = []
    for side in resolutions:
        shown = [source.example(split, index, (side, side)) for index in indices]
        rows.append(SampleRow(side, [Sample(one.image, source.classes[one.label]) for one in shown]))
    return rows


def _fields(model: VisionTransformer) -> list[FieldsOfView]:
    from sightline.analysis.fields_of_view import field_of_view
    from sightline.grid import Grid
    from sightline.reports.content import FieldsOfView

    # Odd, so that the centre query stands in the middle.
    grid = Grid(*(side - 1 + side % 2 for side in model.config.train_grid))
    found = []
    for layer in dict.fromkeys((0, model.config.depth - 1)):
        weight = field_of_view(model, layer, grid)
        if weight is not None:
            found.append(FieldsOfView(model.encoding.name, layer, (grid.rows, grid.cols), weight))
    return found


def compose_report(folders: Sequence[Path], command: str, *, title: str, notes: Sequence[str] = ()) -> Report:
    """The content of a report on some runs.

    Raises:
        InputError: a folder is no measured run, or the runs have different data.
    """
    import datetime

    from sightline import runtime
    from sightline.reports.content import Report

    runs = [(folder, *read_run(folder)) for folder in folders]
    # The page's curves are about square sizes.
    rows = [row for *_, measured in runs for row in measured if row.resolution is not None]
    summaries = [_summary(folder, model, training, measured) for folder, model, training, measured in runs]
    data = {training["config"]["data"] for _, _, training, _ in runs}
    if len(data) > 1:
        raise InputError(f"report: the runs were trained on {', '.join(sorted(data))}; expected the same data")
    resolutions = sorted({row.resolution for row in rows if row.split == "test" and row.resolution is not None})
    classes = runs[0][1].num_classes
    precision = sorted({summary.precision for summary in summaries})
    return Report(
        title=title,
        command=command,
        runs=summaries,
        rows=rows,
        samples=_samples(data.pop(), resolutions),
        fields=[field for _, model, _, _ in runs for field in _fields(model)],
        seconds_total=sum(summary.train_seconds + summary.evaluate_seconds for summary in summaries),
        hardware=runs[0][2]["hardware"],
        commit=runtime.commit(),
        created=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        notes=[f"Trained and tested in {', '.join(precision)}.", *notes],
        other_commands=[f"sightline evaluate {folders[0]} --tune", f"sightline predict {folders[0]} IMAGE"],
        chance=1 / classes,
    )
