"""The results page: one HTML file that needs nothing else, of measured rows and what runs say of themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from sightline.hub.model_card import describe_encoding
from sightline.io.atomic import write_file
from sightline.published import paper
from sightline.reports import analysis_page, differences, figures, maps, page, series, style, words
from sightline.reports import results_tables as tables
from sightline.reports import seen as sizes_of
from sightline.reports.attributes_part import attributes_parts
from sightline.reports.content import FieldsOfViewFigure, Report, RunSummary, SeenSizes
from sightline.reports.lines import drawn
from sightline.reports.series import PlotLine, Study
from sightline.reports.words import TIMES
from sightline.results.rows import ResultRow

# What has a curve beside the main one.
_BY_WORDS = "zero_shot_top1"


_as_json = partial(json.dumps, indent=2, ensure_ascii=False, default=str)


def write_report(path: str | Path, report: Report) -> None:
    """Write `report` to `path` as one HTML file, whole or not at all; what was there before is replaced.

    Raises:
        InputError: the rows are empty, of several data sets or contradict each other.
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
    every = [line for line in study.lines() if line.shrunk is None]
    parts = {by: tables.by_part(study, main.metric, by) for by in study.parts(main.metric)}
    attacked = figures.attack_metrics(study)
    # A metric that stands elsewhere on the page has no place of its own.
    beside = {*attacked, *(["top1_within_group"] if "group" in parts else [])}
    beside |= {figures.RIGHT, figures.SURE} if figures.is_calibrated(study) else set()
    alike = tables.error_consistency(study, report.alike)
    beside |= {"shape_bias"}
    # Of five classes or fewer the right one is always among the first five.
    beside |= {"top5"} if report.chance is not None and report.chance >= 0.2 else set()
    # Those of attributes, of a paper that has no curve.
    tests = {name: [one for one in paper(name).numbers if one.metric == "wilcoxon_p"] for name in report.papers}
    validation = [(run, point) for run in report.runs for point in run.validation]
    return page.render(
        "report.html",
        **_MODULES,
        title=report.title,
        command=report.command,
        report=report,
        study=study,
        main=main,
        lines=[line for line in every if line.points],
        cards=[_card(name, every) for name in dict.fromkeys(line.run for line in every)],
        data_words=data_words(main),
        several_seeds=len({(row.run, row.seed) for row in report.rows}) > len({row.run for row in report.rows}),
        by_words=[replace(study, main=one, chance=None) for one in study.metrics()[1:] if one.metric == _BY_WORDS],
        others=[one.metric for one in study.metrics()[1:] if one.metric not in beside],
        sizes=parts.pop("size_quintile", []),
        groups=parts.pop("group", []),
        parts=[table for some in parts.values() for table in some],
        attributes=attributes_parts(study),
        tests=[one for some in tests.values() for one in some],
        people=[table for table in (tables.by_resolution(study, "shape_bias"), alike) if table is not None],
        attacked=[table for metric in attacked for table in tables.by_attack(study, metric)],
        published=[_published(study, name) for name in report.papers if not tests[name]],
        inside=analysis_page.by_layer_sections(report.inside, order),
        views=_views(report.fields, report.runs),
        points=[point for _, point in validation],
        best=[(run.name, point) for run, point in validation if point.step == run.best_step],
        configurations=[(run.name, _as_json(dict(run.config))) for run in report.runs if run.config],
        **introduction(report.runs, report.rows, seen),
    )


def _card(name: str, every: Sequence[PlotLine]) -> tuple[PlotLine, list[int]]:
    """A run's first line, default knob before tuned, and the sizes of its card: one of training and the largest."""
    line = next(line for line in every if line.run == name)
    first = line.seen.main_of(list(line.points))
    return line, [] if first is None else list(dict.fromkeys([first, max(line.points)]))


def _published(study: Study, name: str) -> dict[str, Any]:
    """The section of a paper's curve, with its numbers as they are printed: a line a method, a column a size."""
    one = paper(name)
    what = f"What {one.authors} printed, beside what was measured"
    beside = figures.beside_paper(study, one)
    assert one.curve is not None
    columns = {
        side: tables.Head(f"{side}\u00a0px", f"{side / one.curve.trained:.3g}{TIMES}")
        for side in sorted({side for _, points in one.lines().values() for side in points})
    }
    lines = {
        tables.Head(method, encoding): {columns[side]: point.value for side, point in points.items()}
        for method, (encoding, points) in one.lines().items()
    }
    caption = f"Published: {words.title(one.curve.metric)} in %, {one.curve.said}"
    return {
        "paper": one,
        "figure": drawn(beside, f"paper{name.replace('_', '')}", what, height=3.8),
        "numbers": tables.table_of(caption, lines, "method", columns.values()),
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
            draw = partial(maps.fields_of_view, field)
            shown.append((caption, style.both(draw, f"view{len(views)}x{len(shown)}", what)))
        views.append({"encoding": encoding, "words": encoding_words(encoding, runs), "figures": shown})
    return views


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
    if sizes and known.keys() == set(names):
        millions = words.span([f"{size / 1e6:.{1 if size >= 1e5 else 3}f}" for size in sizes])
        details.append(f"{millions} million parameters{' each' * (len(names) > 1)}")
    if len(patches) == 1:
        details.append(f"patches of {min(patches)} {TIMES} {min(patches)} px")
    trainings: dict[str, list[str]] = {}
    for name in (name for name in names if seen[name].nominal is None):
        said = f"on {_shown([row for row in rows if row.run == name])} of {seen[name].words}"
        if name in known and known[name].train_images:
            # Of a folder they are fewer, each shown several times.
            said += f", {known[name].train_images:,} shown in all"
        said += f", of each {seen[name].parts}" if seen[name].parts else ""
        said += f", tokens dropped: {seen[name].drop}" if seen[name].drop else ""
        trainings.setdefault(said, []).append(name)
    shown = [seen[name] for name in names]
    unseen = any(not any(one.holds(size) for one in shown) for size in grids)
    unseen &= all(one.low is not None and not one.fine_tuned_from for one in shown)
    unknown = [name for name in names if seen[name].nominal is not None]
    kinds = {"images": "train_images", "tokens": "train_tokens", "operations": "train_flops", "losses": "loss.kind"}
    unlike = [word for word, what in kinds.items() if len(set(filter(None, map(attrgetter(what), runs)))) > 1]
    told = {"details": details, "trainings": trainings, "unknown": unknown, "unlike": unlike, "grids": grids}
    return {**told, "seen_sizes": shown, "unseen": unseen}


_MODULES = {
    "differences": differences, "figures": figures, "series": series, "style": style, "tables": tables, "words": words,
    "maps": maps, "drawn": drawn, "encoding_words": encoding_words, "metric_words": metric_words,
}  # fmt: skip
