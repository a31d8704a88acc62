"""One report as one HTML file that needs nothing else: no network, no script, no file beside it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import numpy as np

from sightline.errors import InputError, StorageError
from sightline.reports import explain, findings, grids, plots, series, style
from sightline.reports.content import FieldsOfView, Report, RunSummary, SampleRow


@dataclass(frozen=True, slots=True)
class _Card:
    name: str
    encoding: str
    words: str
    colour: str
    numbers: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Picture:
    uri: str
    caption: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class _PictureRow:
    label: str
    patches: tuple[int, int] | None
    pictures: Sequence[_Picture]


@dataclass(frozen=True, slots=True)
class _View:
    encoding: str
    words: str
    figures: Sequence[tuple[str, str]]


def write_report(path: str | Path, report: Report) -> None:
    """Write `report` to `path` as one HTML file, whole or not at all; what was there before is replaced.

    Raises:
        InputError: the rows are empty, of several data sets or contradict each other, or an array has a wrong shape.
        StorageError: the file cannot be written; what was there before is untouched.
    """
    path = Path(path)
    text = render(report)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # A lone surrogate (a file name that is not UTF-8) must not cost the report.
        temporary.write_bytes(text.encode("utf-8", "replace"))
        os.replace(temporary, path)
    except OSError as error:
        raise StorageError(f"{path}: the report cannot be written ({error.strerror or error})") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def render(report: Report) -> str:
    """The HTML text of `report`; equal reports give equal text.

    Raises:
        InputError: as `write_report`.
    """
    from jinja2 import Environment, StrictUndefined

    series.check_rows(report.rows)
    rows = list(report.rows)
    split = series.main_split(rows)
    order = series.run_order(rows, [run.name for run in report.runs])
    chance = report.chance if report.chance is not None else explain.guessing(rows[0])
    first, evidence = findings.headline(rows, order)
    chosen = series.lines(rows, split=split, order=order)
    curve = plots.accuracy_by_resolution(rows, split=split, order=order, chance=chance)
    sizes = grids.by_size(rows, split, order)
    held_out = None if split == series.HELD_OUT else _held_out(report, order)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files("sightline.reports").joinpath("template.html").read_text("utf-8"))
    return template.render(
        report=report,
        introduction=explain.introduction(report.runs, rows),
        data_words=explain.data_words(rows[0]),
        headline=first,
        evidence=evidence,
        cards=_cards(report, chosen, order),
        chance=None if chance is None else findings.percent(chance),
        trained=series.train_resolutions(chosen),
        tested=series.resolutions(chosen),
        tuned=any(line.tuned for line in chosen),
        seeds=explain.span_of_seeds(rows),
        curve=style.inline(curve, "curve", "Top-1 accuracy by test resolution, one line a run"),
        accuracy=grids.accuracy(rows, split, order, f"Top-1 accuracy in %, split {split}"),
        top5=grids.accuracy(rows, split, order, f"Top-5 accuracy in %, split {split}", metric="top5"),
        quintiles=_quintiles(report, split, order) if sizes else "",
        sizes=sizes,
        groups=grids.by_group(rows, split, order),
        held_out=held_out,
        samples=[_picture_row(row, report) for row in report.samples],
        views=_views(report.fields, report.runs),
        loss=_loss(report, order),
        training=grids.training(report.runs, order) if report.runs else None,
        configurations=[(run.name, _as_json(run)) for run in report.runs if run.config],
        total=findings.duration(report.seconds_total),
    )


def _cards(report: Report, chosen: Sequence[series.Line], order: Sequence[str]) -> list[_Card]:
    """A card a run: its encoding in a sentence, its accuracy as trained and at the largest size."""
    cards = []
    for name in dict.fromkeys(line.run for line in chosen):
        # Default knob before tuned, and the first seed.
        line = next(line for line in chosen if line.run == name)
        trained, largest = line.train_resolution, max(line.points)
        numbers = []
        if trained in line.points:
            numbers.append((findings.percent(line.points[trained].value), f"{trained} px, as trained"))
        if largest != trained:
            numbers.append((findings.percent(line.points[largest].value), f"{largest} px"))
        words = explain.encoding_words(line.encoding, [run for run in report.runs if run.name == name])
        encoding = "" if line.encoding == name else line.encoding
        cards.append(_Card(findings.name(line), encoding, words, style.colour(name, order), numbers))
    return cards


def _held_out(report: Report, order: Sequence[str]) -> grids.TextTable | None:
    return grids.accuracy(report.rows, series.HELD_OUT, order, "Top-1 accuracy in %, fonts not seen in training")


def _quintiles(report: Report, split: str, order: Sequence[str]) -> str:
    svg = plots.quintile_plot(report.rows, split=split, order=order)
    return style.inline(svg, "size", "Top-1 accuracy by size of the object")


def _loss(report: Report, order: Sequence[str]) -> str:
    curves = {run.name: run.loss for run in report.runs if len(run.loss.images)}
    return style.inline(plots.loss_plot(curves, order=order), "loss", "Training loss by images seen") if curves else ""


def _views(fields: Sequence[FieldsOfView], runs: Sequence[RunSummary]) -> list[_View]:
    views = []
    for encoding in dict.fromkeys(field.encoding for field in fields):
        figures = []
        for field in fields:
            if field.encoding == encoding:
                caption = f"layer {field.layer}, {field.grid[0]} {findings.TIMES} {field.grid[1]} patches"
                prefix = f"view{len(views)}x{len(figures)}"
                svg = plots.fields_of_view(field)
                figures.append((caption, style.inline(svg, prefix, f"Fields of view of each head, {caption}")))
        views.append(_View(encoding, explain.encoding_words(encoding, runs), figures))
    return views


def _picture_row(row: SampleRow, report: Report) -> _PictureRow:
    """A row of pictures; the patches are known where the first is as large as the rows say."""
    pictures = [_picture(sample.image, sample.caption) for sample in row.samples]
    grid = next((other.grid for other in report.rows if other.resolution == row.resolution), None)
    square = bool(pictures) and pictures[0].width == pictures[0].height == row.resolution
    return _PictureRow(f"{row.resolution} px", grid if square else None, pictures)


def _picture(image: np.ndarray, caption: str) -> _Picture:
    """A picture as a PNG data URI; shape and type are checked, since a wrong one would show nonsense."""
    from PIL import Image

    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
        raise InputError(
            f"sample {caption!r}: shape {list(image.shape)}, {image.dtype}; wanted uint8 [height, width, 3]"
        )
    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "PNG", optimize=True)
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    return _Picture(uri, caption, image.shape[1], image.shape[0])


def _as_json(run: RunSummary) -> str:
    return json.dumps(dict(run.config), indent=2, ensure_ascii=False, default=str)
