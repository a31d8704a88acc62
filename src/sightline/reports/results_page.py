"""The results page: one HTML file that needs nothing else, of measured rows and what runs say of themselves."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from sightline.errors import InputError
from sightline.hub.model_card import describe_encoding
from sightline.io.atomic import write_file
from sightline.published import paper
from sightline.reports import analysis_page, differences, figures, page, panels, series, style, words
from sightline.reports import results_tables as tables
from sightline.reports import seen as sizes_of
from sightline.reports.content import Answers, FieldsOfViewFigure, Report, RunSummary, Sample, SeenSizes
from sightline.reports.lines import drawn
from sightline.reports.series import PlotLine, Study
from sightline.reports.words import TIMES
from sightline.results.rows import FRACTION, ResultRow

_COUNTS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
# Beyond so many classes a picture of all pairs cannot be read.
_MOST_IN_PICTURE = 40


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
    parts = {by: tables.by_part(study, main.metric, by) for by in study.parts(main.metric)}
    calibrated, attacked = figures.is_calibrated(study), figures.attack_metrics(study)
    # A metric that stands elsewhere on the page has no place of its own.
    beside = {"top1_within_group"} if "group" in parts else set()
    beside |= {figures.RIGHT, figures.SURE} if calibrated else set()
    others = [one.metric for one in study.metrics()[1:] if one.metric not in {*beside, *attacked}]
    share, metric = main.unit == FRACTION, words.capital(words.title(main.metric))
    curve = partial(drawn, description=f"{metric} by test resolution, one line a run", height=4.0, narrow_height=3.0)
    return page.render(
        "report.html",
        title=report.title,
        command=report.command,
        report=report,
        words=words,
        main=main,
        share=share,
        lines=chosen,
        beyond=_beyond(chosen),
        data_words=data_words(main),
        cards=[_card(report, study, name, every) for name in dict.fromkeys(line.run for line in every)],
        differences=differences.between_runs(study),
        downsampling=differences.of_downsampling(study),
        case=_case(main),
        chance=None if study.chance is None else words.percent(study.chance),
        tuned=" or ".join(dict.fromkeys(line.searched for line in chosen if line.tuned)),
        paired=any(line.paired for line in chosen),
        unlike=_unlike(report.runs),
        seeds=len({(row.run, row.seed) for row in report.rows}) > len({row.run for row in report.rows}),
        curve=curve(figures.by_resolution(study), "curve"),
        curve_fitted=curve(figures.by_resolution(study, fitted=True), "fitted") if share else "",
        numbers=tables.by_resolution(study, main.metric),
        others=[(metric_words(metric), tables.of_metric(study, metric)) for metric in others],
        by_view=tables.by_view(study, main.metric),
        quintiles=drawn(
            figures.by_object_size(study), "size", f"{metric} by size of the object", height=2.7, narrow_height=2.4
        ),
        sizes=parts.pop("size_quintile", []),
        groups=parts.pop("group", []),
        parts=[table for some in parts.values() for table in some],
        reliability=drawn(
            figures.reliability(study) if calibrated else [],
            "sure",
            "Accuracy by confidence, one line a run",
            height=3.8,
            narrow_height=3.3,
        ),
        bins=tables.by_part(study, figures.RIGHT, figures.BIN) if calibrated else [],
        attacks=drawn(
            figures.under_attack(study), "attacked", "Accuracy under attack by test resolution", height=2.5, columns=2
        ),
        attacked=[table for metric in attacked for table in tables.by_attack(study, metric)],
        published=[_published(study, name) for name in report.papers],
        inside=analysis_page.by_layer_sections(report.inside, order),
        held_out=tables.held_out(study),
        answers=[_said(said, number, order) for number, said in enumerate(report.answers) if said.answers],
        pictures_said=[_picture(one) for one in report.pictures],
        samples=[_samples(side, some, report.rows) for side, some in report.samples.items()],
        views=_views(report.fields, report.runs),
        training=tables.training(report.runs, order) if report.runs else None,
        configurations=[(run.name, as_json(dict(run.config))) for run in report.runs if run.config],
        total=words.duration(report.seconds_total),
        **introduction(report.runs, report.rows, seen),
        **_trained(report.runs, order),
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
    inside, numbers = [size for size in line.points if line.seen.holds(size)], []
    for size in dict.fromkeys([*inside[-1:], *list(line.points)[-1:]]):
        point = line.points[size]
        where = f"{size} px{words.SEEN[series.seen_at(size, [line])]}"
        numbers.append((words.quantity(point.value, point.unit), words.interval(words.limits(point)), where))
    return {
        "name": line.name,
        "encoding": "" if line.encoding == name else line.encoding,
        "words": encoding_words(line.encoding, [run for run in report.runs if run.name == name]),
        "colour": style.colour(name, study.order),
        "numbers": numbers,
        "near_guessing": bool(line.points) and not differences.learned(line, study.chance),
    }


def _published(study: Study, name: str) -> dict[str, Any]:
    """The section of a paper's curve, with its numbers as they are printed: a line a method, a column a size."""
    one = paper(name)
    what = f"What {one.authors} printed, beside what was measured"
    beside = figures.beside_paper(study, one)
    assert one.curve is not None
    lines, trained = one.lines(), one.curve.trained
    sizes = sorted({side for _, points in lines.values() for side in points})
    columns = [tables.Head(f"{size}\u00a0px", f"{size / trained:.3g}{TIMES}") for size in sizes]
    made = []
    for method, (encoding, points) in lines.items():
        cells = [tables.Cell(points[size].value) if size in points else tables.Cell() for size in sizes]
        made.append((tables.Head(method, encoding), cells))
    caption = f"Published: {words.title(one.curve.metric)} in %, {one.curve.said}"
    return {
        "paper": one,
        "figure": drawn(beside, f"paper{name.replace('_', '')}", what, height=3.8, narrow_height=3.0),
        "numbers": tables.Table(caption, columns, made, "method"),
    }


def _said(said: Answers, number: int, order: Sequence[str]) -> dict[str, Any]:
    """What a run said: a section of mistakes."""
    score = tables.share(sum(one.correct for one in said.answers), len(said.answers))
    (names, counts), picture = tables.confusion(said), ""
    if 1 < len(names) <= _MOST_IN_PICTURE:
        picture = style.inline(panels.confusion_picture(counts, names), f"said{number}", "What was taken for what")
    return {
        "summary": f"{said.run}: {words.with_interval(score)} of {score.count:,} images of split {said.split} named "
        f"correctly at {said.shown}",
        "colour": style.colour(said.run, order),
        "mistakes": [_picture(one) for one in said.mistakes],
        "confusions": tables.confusions(said),
        "picture": picture,
        "classes": tables.by_class(said),
    }


def _views(fields: Sequence[FieldsOfViewFigure], runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """The figures of each encoding once: where runs share one, those of the first of them."""
    views = []
    for encoding in dict.fromkeys(field.encoding for field in fields):
        of_encoding = [field for field in fields if field.encoding == encoding]
        shown = []
        for field in (field for field in of_encoding if field.run == of_encoding[0].run):
            caption = f"layer {field.layer}, {field.grid[0]} {TIMES} {field.grid[1]} patches"
            alike = [other for other in of_encoding if (other.layer, other.grid) == (field.layer, field.grid)]
            if len(of_encoding) > len(alike) or any((other.weight != field.weight).any() for other in alike):
                caption += f", run {field.run}"
            what = f"Fields of view of each head, {caption}"
            draw = partial(panels.fields_of_view, field)
            shown.append((caption, style.both(draw, f"view{len(views)}x{len(shown)}", what)))
        views.append({"encoding": encoding, "words": encoding_words(encoding, runs), "figures": shown})
    return views


def _samples(side: int, samples: Sequence[Sample], rows: Sequence[ResultRow]) -> dict[str, Any]:
    """A row of pictures; the patches are known where the first is as large as the rows say."""
    pictures = [_picture(sample) for sample in samples]
    square = bool(pictures) and pictures[0]["width"] == pictures[0]["height"] == side
    return {"side": side, "patches": series.grids(rows).get(side, ()) if square else (), "pictures": pictures}


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


def _trained(runs: Sequence[RunSummary], order: Sequence[str]) -> dict[str, Any]:
    """The figures of training, and what their captions name."""
    losses, validation = figures.loss(runs, order), figures.validation(runs, order)
    points = [point for run in runs for point in run.validation]
    what = f"{words.capital(words.title(points[0].measured.metric))} on validation images" if points else ""
    return {
        "loss": drawn(losses, "loss", "Training loss", height=2.6, columns=1, share_y=False),
        "losses": len(losses),
        "validation": drawn(validation, "validation", f"{what} while training", height=2.6),
        "counts": [f"{count:,}" for count in sorted({point.measured.count for point in points})],
        "points": points,
        # A run that was validated once has no curve.
        "band_or_bar": sorted({"bar" if len(run.validation) == 1 else "band" for run in runs if run.validation}),
        "best": [(run.name, point) for run in runs for point in run.validation if point.step == run.best_step],
    }


def encoding_words(name: str, runs: Sequence[RunSummary] = ()) -> str:
    """One line on what the encoding does: the run's own words if it has some; "" where nothing is known."""
    return next((run.about for run in runs if run.encoding == name and run.about), "") or describe_encoding(name)


def data_words(row: ResultRow) -> str:
    """What is seen in the images and what has to be said about them; for unknown data only its name."""
    about = words.about()
    if row.metric in about["asked"]:
        if row.task in about["seen"]:
            return f"{about['seen'][row.task].strip()} {about['asked'][row.metric].strip()}"
        return f"The images are those of {row.data}. {about['asked_of_any'][row.metric]}"
    said = [about["data"][kind] for kind in dict.fromkeys((row.task, row.data)) if kind in about["data"]]
    return " ".join(said) or f"The {_shown([row])} are those of {row.data}."


def _shown(rows: Sequence[ResultRow]) -> str:
    """What a model was shown."""
    return "clips" if any(row.frames for row in rows) else "images"


def _case(row: ResultRow) -> str:
    """What shrinking does to the images of a data set; "" where that is not known."""
    cases = words.about()["case"]
    return next((cases[name].strip() for name in (row.task, row.data.split(":")[0]) if name in cases), "")


def metric_words(metric: str) -> str:
    """A metric, and what it says where that is known here."""
    return words.capital(words.title(metric)) + words.about()["said"].get(metric, "")


def introduction(
    runs: Sequence[RunSummary], rows: Sequence[ResultRow], seen: Mapping[str, SeenSizes]
) -> dict[str, Any]:
    """What introduction.html says: what was trained and how it was tested.

    Args:
        seen: run -> the sizes of its training.
    """
    names, grids = list(dict.fromkeys(row.run for row in rows)), series.grids(rows)
    squares = {(row.resolution, row.grid[-1]) for row in rows if row.shrunk is None and row.resolution and row.grid}
    patches = {size // cells for size, cells in squares if cells > 0 and size % cells == 0}
    known = {run.name: run for run in runs if run.name in names}
    sizes, details = sorted({run.parameters for run in known.values() if run.parameters}), []
    if sizes:
        millions = words.span([f"{size / 1e6:.{1 if size >= 1e5 else 3}f}" for size in sizes])
        details.append(f"{millions} million parameters{' each' * (len(names) > 1)}")
    if len(patches) == 1:
        details.append(f"patches of {min(patches)} {TIMES} {min(patches)} px")
    trainings: dict[str, list[str]] = {}
    for name in names:
        said = f"on {_shown([row for row in rows if row.run == name])} of {seen[name].words}"
        if name in known and known[name].train_images:
            # Of a folder they are fewer, each shown several times.
            said += f", {known[name].train_images:,} shown in all"
        said += f", of each {seen[name].parts}" if seen[name].parts else ""
        said += f", tokens dropped: {seen[name].drop}" if seen[name].drop else ""
        trainings.setdefault(said, []).append(name)
    shown = [seen[name] for name in names]
    return {
        "names": names,
        "count": _COUNTS[len(names)] if len(names) < len(_COUNTS) else len(names),
        "details": details,
        "trainings": trainings,
        "tested": sorted(grids),
        "seen_sizes": shown,
        "seen": seen,
        "unseen": any(not any(one.holds(size) for one in shown) for size in grids)
        and all(one.low is not None and not one.fine_tuned_from for one in shown),
        "encodings": {row.encoding for row in rows},
        "kinds": sorted({run.kind for run in known.values() if run.kind}),
    }


def _unlike(runs: Sequence[RunSummary]) -> str:
    """In what the trainings of the runs differ, which a comparison of their encodings or sizes does not take out."""
    seen = {
        "images": {run.train_images for run in runs},
        "tokens": {run.train_tokens for run in runs},
        "operations": {run.train_flops for run in runs},
        "losses": {run.loss.kind for run in runs},
    }
    differ = [word for word, values in seen.items() if len(values - {0, ""}) > 1]
    return words.listed(differ) if differ else ""
