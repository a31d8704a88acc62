"""One report as one HTML file: its sections from rows and arrays, and how it is written."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from sightline.errors import InputError
from sightline.replacing import write_file
from sightline.reports import (
    answers,
    explain,
    findings,
    grids,
    page,
    panels,
    plots,
    series,
    style,
    training_plots,
)
from sightline.reports import seen as sizes_of
from sightline.reports.content import Answers, FieldsOfView, Report, RunSummary, Sample, SampleRow, SeenSizes


@dataclass(frozen=True, slots=True)
class _Card:
    name: str
    encoding: str
    words: str
    colour: str
    numbers: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _Picture:
    uri: str
    caption: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class _PictureRow:
    label: str
    patches: tuple[int, ...] | None
    pictures: Sequence[_Picture]


@dataclass(frozen=True, slots=True)
class _Said:
    """What a run said: a section of mistakes."""

    summary: str
    colour: str
    mistakes: _PictureRow | None
    confusions: grids.TextTable | None
    picture: str
    classes: grids.TextTable


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
    # A lone surrogate (a file name that is not UTF-8) must not cost the report.
    write_file(Path(path), render(report).encode("utf-8", "replace"))


def render(report: Report) -> str:
    """The HTML text of `report`; equal reports give equal text.

    Raises:
        InputError: as `write_report`.
    """
    series.check_rows(report.rows)
    rows = list(report.rows)
    split = series.main_split(rows)
    order = series.run_order(rows, [run.name for run in report.runs])
    seen = sizes_of.by_run(report.runs, rows)
    chance = report.chance if report.chance is not None else explain.guessing(rows[0])
    first, evidence = findings.headline(rows, order, seen=seen, chance=chance)
    every = series.lines(rows, split=split, order=order, seen=seen)
    if not every:
        raise InputError(f"no row has metric top1 on split {split}")
    chosen = [line for line in every if line.points]
    sizes = grids.by_size(rows, split, order, seen)
    return page.render(
        "report.html",
        title=report.title,
        command=report.command,
        report=report,
        introduction=explain.introduction(report.runs, rows, seen),
        data_words=explain.data_words(rows[0]),
        headline=first,
        evidence=evidence,
        cards=_cards(report, every, order),
        chance=None if chance is None else findings.percent(chance),
        tuned=any(line.tuned for line in chosen),
        paired=any(line.paired for line in chosen),
        unlike=explain.unlike(report.runs),
        seeds=explain.span_of_seeds(rows),
        curve=_curve(rows, split, order, seen, chance, fitted=False) if chosen else "",
        curve_fitted=_curve(rows, split, order, seen, chance, fitted=True) if chosen else "",
        curve_words=explain.curve_words(chosen),
        accuracy=grids.accuracy(rows, split, order, f"Top-1 accuracy in %, split {split}", seen=seen),
        top5=grids.accuracy(rows, split, order, f"Top-5 accuracy in %, split {split}", metric="top5", seen=seen),
        by_view=grids.by_view(rows, split, order, seen),
        quintiles=_quintiles(report, split, order, seen) if sizes else "",
        sizes=sizes,
        groups=grids.by_group(rows, split, order, seen),
        held_out=None if split == series.HELD_OUT else _held_out(report, order, seen),
        answers=[_said(said, number, order) for number, said in enumerate(report.answers) if said.answers],
        samples=[_sample_row(row, report) for row in report.samples],
        views=_views(report.fields, report.runs),
        training=grids.training(report.runs, order) if report.runs else None,
        configurations=[(run.name, _as_json(run)) for run in report.runs if run.config],
        total=findings.duration(report.seconds_total),
        **training_plots.figures(report.runs, order),
    )


def _curve(
    rows: Sequence[series.ResultRow],
    split: str,
    order: Sequence[str],
    seen: Mapping[str, SeenSizes],
    chance: float | None,
    *,
    fitted: bool,
) -> str:
    def draw(narrow: bool) -> str:
        return plots.accuracy_by_resolution(
            rows, split=split, order=order, seen=seen, chance=chance, fitted=fitted, narrow=narrow
        )

    return style.both(draw, "fitted" if fitted else "curve", "Top-1 accuracy by test resolution, one line a run")


def _cards(report: Report, chosen: Sequence[series.Line], order: Sequence[str]) -> list[_Card]:
    """A card a run: its encoding in a sentence, its accuracy at a size of training and at the largest."""
    cards = []
    for name in dict.fromkeys(line.run for line in chosen):
        # Default knob before tuned, and the first seed.
        line = next(line for line in chosen if line.run == name)
        inside = [size for size in line.points if line.seen.holds(size)]
        numbers = []
        for size in dict.fromkeys([*inside[-1:], *list(line.points)[-1:]]):
            where = ", as trained" if line.seen.one == size else ", seen in training" if line.seen.holds(size) else ""
            point = line.points[size]
            numbers.append((findings.percent(point.value), findings.interval(*point.interval()), f"{size} px{where}"))
        words = explain.encoding_words(line.encoding, [run for run in report.runs if run.name == name])
        encoding = "" if line.encoding == name else line.encoding
        cards.append(_Card(findings.name(line), encoding, words, style.colour(name, order), numbers))
    return cards


def _held_out(report: Report, order: Sequence[str], seen: Mapping[str, SeenSizes]) -> grids.TextTable | None:
    caption = "Top-1 accuracy in %, fonts not seen in training"
    return grids.accuracy(report.rows, series.HELD_OUT, order, caption, seen=seen)


def _quintiles(report: Report, split: str, order: Sequence[str], seen: Mapping[str, SeenSizes]) -> str:
    def draw(narrow: bool) -> str:
        return plots.quintile_plot(report.rows, split=split, order=order, seen=seen, narrow=narrow)

    return style.both(draw, "size", "Top-1 accuracy by size of the object")


def _said(said: Answers, number: int, order: Sequence[str]) -> _Said:
    score = answers.right(said)
    summary = (
        f"{said.run}: {findings.with_interval(score)} of {score.images:,} images of split {said.split} named correctly "
        f"at {said.shown}"
    )
    names, counts = answers.confusion(said)
    picture = ""
    if 1 < len(names) <= answers.MOST_IN_PICTURE:
        picture = style.inline(panels.confusion_picture(counts, names), f"said{number}", "What was taken for what")
    mistakes = _PictureRow("", None, [_picture(one) for one in said.mistakes]) if said.mistakes else None
    return _Said(
        summary, style.colour(said.run, order), mistakes, grids.confusions(said), picture, grids.by_class(said)
    )


def _views(fields: Sequence[FieldsOfView], runs: Sequence[RunSummary]) -> list[_View]:
    """The figures of each encoding once: where runs share one, those of the first of them."""
    views = []
    for encoding in dict.fromkeys(field.encoding for field in fields):
        of_encoding = [field for field in fields if field.encoding == encoding]
        figures = []
        for field in (field for field in of_encoding if field.run == of_encoding[0].run):
            caption = f"layer {field.layer}, {field.grid[0]} {findings.TIMES} {field.grid[1]} patches"
            alike = [other for other in of_encoding if (other.layer, other.grid) == (field.layer, field.grid)]
            if len(of_encoding) > len(alike) or any((other.weight != field.weight).any() for other in alike):
                caption += f", run {field.run}"
            prefix = f"view{len(views)}x{len(figures)}"

            def draw(narrow: bool, field: FieldsOfView = field) -> str:
                return panels.fields_of_view(field, narrow=narrow)

            figures.append((caption, style.both(draw, prefix, f"Fields of view of each head, {caption}")))
        views.append(_View(encoding, explain.encoding_words(encoding, runs), figures))
    return views


def _sample_row(row: SampleRow, report: Report) -> _PictureRow:
    """A row of pictures; the patches are known where the first is as large as the rows say."""
    pictures = [_picture(sample) for sample in row.samples]
    grid = series.grids(report.rows).get(row.resolution)
    square = bool(pictures) and pictures[0].width == pictures[0].height == row.resolution
    return _PictureRow(f"{row.resolution} px", grid if square else None, pictures)


def _picture(sample: Sample) -> _Picture:
    """A picture as a PNG data URI; shape and type are checked, since a wrong one would show nonsense."""
    from PIL import Image

    image, caption = sample.image, sample.caption
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
