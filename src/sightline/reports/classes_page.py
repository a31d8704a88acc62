"""How classes fare between sizes and models: tables for the terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from sightline.reports import classes_plot, page, style
from sightline.reports.tables import print_table
from sightline.results.classes import MEAN, METRICS, ClassEffect, ClassStudy
from sightline.results.rows import ResultRow

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
# Of each kind in figures; tables may show more.
_PANELS = 3
# What a mean of fractions is off 0 by rounding.
_NOTHING = 1e-12


def largest(effects: Sequence[ClassEffect], most: int) -> dict[str, list[ClassEffect]]:
    """The classes that stand out, by what is looked for in words: at most so many of each, the largest first; of equals
    in the order of the classes. Changes are of the mean of all lines; what did not change is none."""
    found: dict[str, list[ClassEffect]] = {}

    def put(name: str, some: Iterable[ClassEffect], size: Callable[[float], float]) -> None:
        # What is equal but for rounding is equal.
        ordered = sorted(some, key=lambda one: -round(size(one.value), 12))
        found[name] = [one for one in ordered if size(one.value) > _NOTHING][:most]

    for metric in METRICS:
        of = [one for one in effects if one.metric == metric and one.line == MEAN]
        put(f"{metric} falls", (one for one in of if one.kind == "change"), lambda value: -value)
        put(f"{metric} rises", (one for one in of if one.kind == "change"), float)
        for kind in ("spread_of_models", "spread_of_sizes"):
            put(f"{metric} {kind}", (one for one in of if one.kind == kind), float)
    put("gap", (one for one in effects if one.kind == "gap"), abs)
    put("confusion", (one for one in effects if one.kind == "confusion"), float)
    return {name: some for name, some in found.items() if some}


def print_effects(study: ClassStudy, effects: Sequence[ClassEffect], most: int) -> None:
    """Print what stands out, at most so many classes of each kind, and of what all of it is."""
    for title, table in tables(study, effects, most):
        print_table(*table, title=title)
    print(said(study))


def said(study: ClassStudy) -> str:
    """What the numbers are."""
    between = f"from {study.since} to {study.shown}" if study.grows else f"at {study.shown}"
    images = len(study.one.labels)
    count = len(study.lines)
    of = f"the mean of {count} lines" if count > 1 else study.lines[0]
    line = (
        f"{between}, of {images:,} images, {of}; values in %, differences in points of percent, +- one standard error"
    )
    return f"{line} (of images; the classes that stand out were chosen by the same images)"


def tables(study: ClassStudy, effects: Sequence[ClassEffect], most: int) -> list[tuple[str, Table]]:
    """The classes that stand out, a table a kind, each with its title."""
    made: list[tuple[str, Table]] = []
    whole = [one for one in effects if one.kind == "extrapolation"]
    if whole:
        rows = [(one.line, one.shown, _signed(one.value), _error(one)) for one in whole]
        made.append((f"Top-1 less that at {study.since}", (("line", "size", "change", "+-"), rows)))
    found = largest(effects, most)
    numbers = {name: number for number, name in enumerate(study.one.classes)}
    for metric in METRICS:
        for kind, titled in (("falls", "Largest falls"), ("rises", "Largest rises")):
            some = found.get(f"{metric} {kind}", ())
            if some:
                ends = [_ends(study, metric, numbers[one.name]) for one in some]
                rows = [
                    (one.name, *pair, _signed(one.value), _error(one), f"{one.count:,}")
                    for one, pair in zip(some, ends, strict=True)
                ]
                head = ("class", study.since, study.shown, "change", "+-", "images")
                made.append((f"{titled} of {classes_plot.SAID[metric]}", (head, rows)))
        for kind, titled in (
            ("spread_of_models", f"between models at {study.shown}"), ("spread_of_sizes", "between sizes"),
        ):  # fmt: skip
            some = found.get(f"{metric} {kind}", ())
            if some:
                rows = [(one.name, *_range(study, one, numbers[one.name]), _share(one.value)) for one in some]
                head = ("class", "lowest", "highest", "apart")
                made.append((f"Largest spreads of {classes_plot.SAID[metric]} {titled}", (head, rows)))
    if "gap" in found:
        rows = [
            (one.name, one.line, one.against, _signed(one.value), _error(one), f"{one.count:,}") for one in found["gap"]
        ]
        head = ("class", "line", "against", "gap", "+-", "images")
        made.append((f"Largest gaps of accuracy at {study.shown}", (head, rows)))
    if "confusion" in found:
        rows = [(one.name, one.other, _share(one.value), f"{one.count:,}") for one in found["confusion"]]
        made.append(("Confused pairs, by moved probability", (("true class", "taken for", "moved", "images"), rows)))
    return made


def render(
    study: ClassStudy, effects: Sequence[ClassEffect], row: ResultRow, command: str, *, most: int, chosen: str = ""
) -> str:
    """The HTML text: equal effects give equal text.

    Args:
        row: any of the measurements.
        command: the line that makes it again.
        most: classes of each kind in tables.
        chosen: which images of the split, in words; empty for all that the lines have in common.
    """
    figures: list[tuple[str, str, str]] = []
    if study.grows:
        what = f"Accuracy at each size less that at {study.since}; bars: 95 %, paired by image."
        draw = partial(classes_plot.extrapolation, study, effects)
        figures.append(("Accuracy between sizes", style.both(draw, "gap", what), what))
        found = largest(effects, _PANELS)
        for metric in METRICS:
            kinds = ("falls", "rises", "spread_of_models")
            some = {one.name: one for kind in kinds for one in found.get(f"{metric} {kind}", ())}
            if some:
                of = "Accuracy on the images of a class" if metric == "top1" else "The share of all images named so"
                what = f"{of}, by size: of the classes with the largest falls, rises and spreads between models."
                draw = partial(classes_plot.by_class, study, metric, list(some.values()))
                title = "Accuracy by class" if metric == "top1" else "How often a class is named"
                figures.append((title, style.both(draw, metric, what), what))
        if pairs := largest(effects, 2 * _PANELS).get("confusion"):
            what = (
                "Of the images of a class: its mean probability (softmax), and that of the class that it gives most "
                f"to, at each size. The open mark is {study.since}."
            )
            draw = partial(classes_plot.crossings, study, pairs)
            figures.append(("Confused pairs", style.both(draw, "pairs", what), what))
    return page.render(
        "classes.html",
        title=f"Classes of {row.data}/{row.split}, between {'sizes and ' if study.grows else ''}models"
        if len(study.lines) > 1
        else f"Classes of {row.data}/{row.split}, between sizes",
        command=command,
        row=row,
        study=study,
        chosen=chosen,
        said=said(study),
        figures=figures,
        tables=tables(study, effects, most),
    )


def _ends(study: ClassStudy, metric: str, number: int) -> tuple[str, str]:
    """A metric of a class at both sizes, the mean of all lines."""
    ends = [[float(getattr(one, metric)[number]) for one in study.at(size)] for size in (study.since, study.shown)]
    return _share(sum(ends[0]) / len(ends[0])), _share(sum(ends[1]) / len(ends[1]))


def _range(study: ClassStudy, one: ClassEffect, number: int) -> tuple[str, str]:
    """Who or what has the lowest and the highest metric of a class."""
    if one.kind == "spread_of_models":
        values = {table.line: float(getattr(table, one.metric)[number]) for table in study.at(study.shown)}
    else:
        values = {
            size: sum(float(getattr(table, one.metric)[number]) for table in study.at(size)) / len(study.lines)
            for size in study.sizes
        }
    ends: Any = [(pick(values, key=lambda name: values[name])) for pick in (min, max)]
    return f"{_share(values[ends[0]])} ({ends[0]})", f"{_share(values[ends[1]])} ({ends[1]})"


def _share(value: float) -> str:
    return f"{100 * value:.2f}"


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}"


def _error(one: ClassEffect) -> str:
    return "-" if one.stderr is None else f"{100 * one.stderr:.2f}"
