"""One report as one HTML file: its sections from rows and arrays, and how it is written."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from sightline.errors import InputError
from sightline.io.atomic import write_file
from sightline.published import paper
from sightline.reports import (
    analysis_page,
    answers,
    differences,
    explain,
    figures,
    grids,
    page,
    panels,
    series,
    style,
    training_plots,
    words,
)
from sightline.reports import seen as sizes_of
from sightline.reports.content import Answers, FieldsOfViewFigure, Report, RunSummary, Sample, SampleRow
from sightline.reports.lines import lines_figure
from sightline.reports.series import PlotLine, Study
from sightline.results.rows import FRACTION


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
    seen = sizes_of.by_run(report.runs, report.rows)
    study = Study.of(report.rows, [run.name for run in report.runs], seen=seen, chance=report.chance)
    main, order = study.main, study.order
    as_json = partial(json.dumps, indent=2, ensure_ascii=False, default=str)
    every = [line for line in study.lines() if line.shrunk is None]
    chosen = [line for line in every if line.points]
    parts = {by: grids.by_part(study, main.metric, by) for by in study.parts(main.metric)}
    # A metric whose column stands with the groups has no place of its own.
    beside = {"top1_within_group"} if "group" in parts else set()
    calibrated = figures.is_calibrated(study)
    beside |= {figures.RIGHT, figures.SURE} if calibrated else set()
    attacked = figures.attack_metrics(study)
    beside |= set(attacked)
    others = [one.metric for one in study.metrics()[1:] if one.metric not in beside]
    share, metric = main.unit == FRACTION, words.capital(words.title(main.metric))
    curve, by_size = partial(figures.by_resolution, study), partial(figures.by_object_size, study)
    attacks = partial(lines_figure, figures.attack_panels(study), height=2.5, columns=2)
    reliable = partial(figures.reliability, study)
    described = f"{metric} by test resolution, one line a run"
    return page.render(
        "report.html",
        title=report.title,
        command=report.command,
        report=report,
        main=main,
        share=share,
        lines=chosen,
        beyond=_beyond(chosen),
        data_words=explain.data_words(main),
        cards=[_card(report, study, name, every) for name in dict.fromkeys(line.run for line in every)],
        differences=differences.between_runs(study),
        downsampling=differences.of_downsampling(study),
        case=explain.case_words(main),
        chance=None if study.chance is None else words.percent(study.chance),
        tuned=" or ".join(dict.fromkeys(line.searched for line in chosen if line.tuned)),
        paired=any(line.paired for line in chosen),
        unlike=explain.unlike(report.runs),
        seeds=len({(row.run, row.seed) for row in report.rows}) > len({row.run for row in report.rows}),
        curve=style.both(curve, "curve", described) if chosen else "",
        curve_fitted=style.both(partial(curve, fitted=True), "fitted", described) if chosen and share else "",
        numbers=grids.by_resolution(study, main.metric),
        others=[(explain.metric_words(metric), grids.of_metric(study, metric)) for metric in others],
        by_view=grids.by_view(study, main.metric),
        quintiles=style.both(by_size, "size", f"{metric} by size of the object") if parts.get("size_quintile") else "",
        sizes=parts.pop("size_quintile", []),
        groups=parts.pop("group", []),
        parts=[table for tables in parts.values() for table in tables],
        reliability=style.both(reliable, "sure", "Accuracy by confidence, one line a run") if calibrated else "",
        bins=grids.by_part(study, figures.RIGHT, figures.BIN) if calibrated else [],
        attacks=style.both(attacks, "attacked", "Accuracy under attack by test resolution") if attacks.args[0] else "",
        attacked=[table for metric in attacked for table in grids.by_attack(study, metric)],
        published=[_published(study, name) for name in report.papers],
        inside=analysis_page.by_layer(report.inside, order),
        held_out=grids.held_out(study),
        answers=[_said(said, number, order) for number, said in enumerate(report.answers) if said.answers],
        pictures_said=[_picture(one) for one in report.pictures],
        samples=[_sample_row(row, report) for row in report.samples],
        views=_views(report.fields, report.runs),
        training=grids.training(report.runs, order) if report.runs else None,
        configurations=[(run.name, as_json(dict(run.config))) for run in report.runs if run.config],
        total=words.duration(report.seconds_total),
        **explain.introduction(report.runs, report.rows, seen),
        **training_plots.figures(report.runs, order),
    )


def _beyond(chosen: Sequence[PlotLine]) -> float | None:
    """The largest size that any run saw, where a larger one was measured."""
    highs = [line.seen.high for line in chosen if line.seen.high is not None]
    known = bool(chosen) and len(highs) == len(chosen) and series.resolutions(chosen)[-1] > max(highs)
    return max(highs) if known else None


def _card(report: Report, study: Study, name: str, every: Sequence[PlotLine]) -> dict[str, Any]:
    """A run's encoding in a sentence, and what it reached at a size of training and at the largest."""
    # Default knob before tuned, and the first seed.
    line = next(line for line in every if line.run == name)
    inside = [size for size in line.points if line.seen.holds(size)]
    numbers = []
    for size in dict.fromkeys([*inside[-1:], *list(line.points)[-1:]]):
        point = line.points[size]
        where = f"{size} px{words.SEEN[series.seen_at(size, [line])]}"
        numbers.append((words.quantity(point.value, point.unit), words.interval(words.limits(point)), where))
    return {
        "name": line.name,
        "encoding": "" if line.encoding == name else line.encoding,
        "words": explain.encoding_words(line.encoding, [run for run in report.runs if run.name == name]),
        "colour": style.colour(name, study.order),
        "numbers": numbers,
        "near_guessing": bool(line.points) and not differences.learned(line, study.chance),
    }


def _published(study: Study, name: str) -> dict[str, Any]:
    """The section of a paper's curve."""
    one = paper(name)
    what = f"What {one.authors} printed, beside what was measured"
    return {
        "paper": one,
        "figure": style.both(partial(figures.beside_paper, study, one), f"paper{name.replace('_', '')}", what),
        "numbers": figures.paper_numbers(one),
    }


def _said(said: Answers, number: int, order: Sequence[str]) -> dict[str, Any]:
    """What a run said: a section of mistakes."""
    score = answers.share(sum(one.correct for one in said.answers), len(said.answers))
    names, counts = answers.confusion(said)
    picture = ""
    if 1 < len(names) <= answers.MOST_IN_PICTURE:
        picture = style.inline(panels.confusion_picture(counts, names), f"said{number}", "What was taken for what")
    return {
        "summary": f"{said.run}: {words.with_interval(score)} of {score.count:,} images of split {said.split} named "
        f"correctly at {said.shown}",
        "colour": style.colour(said.run, order),
        "mistakes": {"patches": None, "pictures": [_picture(one) for one in said.mistakes]} if said.mistakes else None,
        "confusions": grids.confusions(said),
        "picture": picture,
        "classes": grids.by_class(said),
    }


def _views(fields: Sequence[FieldsOfViewFigure], runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """The figures of each encoding once: where runs share one, those of the first of them."""
    views = []
    for encoding in dict.fromkeys(field.encoding for field in fields):
        of_encoding = [field for field in fields if field.encoding == encoding]
        figures = []
        for field in (field for field in of_encoding if field.run == of_encoding[0].run):
            caption = f"layer {field.layer}, {field.grid[0]} {words.TIMES} {field.grid[1]} patches"
            alike = [other for other in of_encoding if (other.layer, other.grid) == (field.layer, field.grid)]
            if len(of_encoding) > len(alike) or any((other.weight != field.weight).any() for other in alike):
                caption += f", run {field.run}"
            prefix = f"view{len(views)}x{len(figures)}"
            what = f"Fields of view of each head, {caption}"
            figures.append((caption, style.both(partial(panels.fields_of_view, field), prefix, what)))
        views.append({"encoding": encoding, "words": explain.encoding_words(encoding, runs), "figures": figures})
    return views


def _sample_row(row: SampleRow, report: Report) -> dict[str, Any]:
    """A row of pictures; the patches are known where the first is as large as the rows say."""
    pictures = [_picture(sample) for sample in row.samples]
    square = bool(pictures) and pictures[0]["width"] == pictures[0]["height"] == row.resolution
    patches = series.grids(report.rows).get(row.resolution) if square else None
    return {"label": f"{row.resolution} px", "patches": patches, "pictures": pictures}


def _picture(sample: Sample) -> dict[str, Any]:
    """A picture as a PNG data URI; shape and type are checked, since a wrong one would show nonsense."""
    from PIL import Image

    image, caption = sample.image, sample.caption
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
        found = f"shape {list(image.shape)}, {image.dtype}"
        raise InputError(f"sample {caption!r}: {found}; wanted uint8 [height, width, 3]")
    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "PNG", optimize=True)
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    return {"uri": uri, "caption": caption, "width": image.shape[1], "height": image.shape[0]}
