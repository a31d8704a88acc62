"""How classes fare between sizes and models: tables for the terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sightline.reports import page, style, words
from sightline.reports.lines import Line, Panel, drawn, fitted_range
from sightline.reports.tables import Table, print_cells, text_table
from sightline.results.classes import MEAN, METRICS, ClassEffect, ClassStudy, Metric
from sightline.results.rows import Z95, ResultRow

# Of each kind in figures; tables may show more.
_PANELS = 3
# What a mean of fractions is off 0 by rounding.
_NOTHING = 1e-12
_SAID = {"top1": "accuracy", "predicted": "images named so"}


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
    for table in tables(study, effects, most):
        print_cells(table)
    print(said(study))


def said(study: ClassStudy) -> str:
    """What the numbers are."""
    between = f"from {study.since} to {study.shown}" if study.grows else f"at {study.shown}"
    count = len(study.lines)
    of = f"the mean of {count} lines" if count > 1 else study.lines[0]
    return (
        f"{between}, of {len(study.one.labels):,} images, {of}; values in %, differences in points of percent, +- one "
        "standard error (of images; the classes that stand out were chosen by the same images)"
    )


def tables(study: ClassStudy, effects: Sequence[ClassEffect], most: int) -> list[Table]:
    """The classes that stand out, a table a kind."""
    found, shown = largest(effects, most), study.shown
    numbers = {name: number for number, name in enumerate(study.one.classes)}
    whole = [one for one in effects if one.kind == "extrapolation"]
    made: list[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = [
        (f"Top-1 minus that at {study.since}", ("line", "size", "change", "+-"),
         [(one.line, one.shown, _signed(one.value), _error(one)) for one in whole])
    ]  # fmt: skip
    for metric in METRICS:
        for kind in ("falls", "rises"):
            lines = []
            for one in found.get(f"{metric} {kind}", ()):
                ends = (_mean(study, metric, numbers[one.name], size) for size in (study.since, shown))
                lines.append((one.name, *map(_share, ends), _signed(one.value), _error(one), f"{one.count:,}"))
            columns = ("class", study.since, shown, "change", "+-", "images")
            made.append((f"Largest {kind} of {_SAID[metric]}", columns, lines))
        for kind, where in (("spread_of_models", f"between models at {shown}"), ("spread_of_sizes", "between sizes")):
            some = found.get(f"{metric} {kind}", ())
            lines = [(one.name, *_ends(study, one, numbers[one.name]), _share(one.value)) for one in some]
            title = f"Largest spreads of {_SAID[metric]} {where}"
            made.append((title, ("class", "lowest", "highest", "apart"), lines))
    lines = [
        (one.name, one.line, one.against, _signed(one.value), _error(one), f"{one.count:,}")
        for one in found.get("gap", ())
    ]
    made.append((f"Largest gaps of accuracy at {shown}", ("class", "line", "against", "gap", "+-", "images"), lines))
    lines = [(one.name, one.other, _share(one.value), f"{one.count:,}") for one in found.get("confusion", ())]
    made.append(("Confused pairs, by moved probability", ("true class", "taken for", "moved", "images"), lines))
    return [text_table(*one) for one in made if one[2]]


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
    between = ["sizes"] * study.grows + ["models"] * (len(study.lines) > 1)
    return page.render(
        "classes.html",
        title=f"Classes of {row.data}/{row.split}, between {' and '.join(between) or 'sizes'}",
        command=command,
        row=row,
        study=study,
        chosen=chosen,
        said=said(study),
        figures=_figures(study, effects) if study.grows else {},
        tables=tables(study, effects, most),
    )


def _figures(study: ClassStudy, effects: Sequence[ClassEffect]) -> dict[str, str]:
    """By their names on the page; "" where there is nothing to draw."""
    found = largest(effects, _PANELS)
    made = {"gap": drawn(extrapolation(study, effects), "gap", "Accuracy between sizes", height=3.2)}
    for metric in METRICS:
        kinds = ("falls", "rises", "spread_of_models")
        some = {one.name: one for kind in kinds for one in found.get(f"{metric} {kind}", ())}
        panels = by_class(study, metric, list(some.values()))
        made[metric] = drawn(panels, metric, f"{words.capital(_SAID[metric])} by size", height=2.5, share_y=False)
    pairs = crossings(study, largest(effects, 2 * _PANELS).get("confusion", ()))
    return made | {"pairs": drawn(pairs, "pairs", "Confused pairs", height=2.5, share_y=False)}


def extrapolation(study: ClassStudy, effects: Sequence[ClassEffect]) -> list[Panel]:
    """Top-1 at each size minus that at `since`, in points of percent, with 95 % bars paired by image; one line a line
    (LookHere figure 28)."""
    found = {(one.line, one.shown): one for one in effects if one.kind == "extrapolation"}
    lines = []
    for name in study.lines:
        points = [found.get((name, size)) for size in study.sizes]
        y = [0.0 if one is None else 100 * one.value for one in points]
        bars = [0.0 if one is None else 100 * Z95 * (one.stderr or 0) for one in points]
        limits = [(value - bar, value + bar) for value, bar in zip(y, bars, strict=True)]
        lines.append(Line(name, style.look(name, study.lines), range(len(y)), y, limits))
    return [Panel(lines, y_label=f"top-1 minus that at {study.since} (points)", level=(0, ""), **_sizes(study))]


def by_class(study: ClassStudy, metric: Metric, effects: Sequence[ClassEffect]) -> list[Panel]:
    """A metric (percent) of some classes by size, a panel each, one line a line (figures 29 to 31)."""
    panels = []
    for one in effects:
        lines = [
            Line(name, style.look(name, study.lines), range(len(values)), [100 * value for value in values])
            for name, values in study.curves(metric, one.name).items()
        ]
        axes = {"y_label": f"{_SAID[metric]} (%)", "y_range": fitted_range(lines), **_sizes(study)}
        panels.append(Panel(lines, one.name, **axes))
    return panels


def crossings(study: ClassStudy, pairs: Sequence[ClassEffect]) -> list[Panel]:
    """For pairs of classes, of the images of the first: its mean probability (across) and that of the second (up), from
    the size `since`, which has an open mark, on; one line a line (figures 32 to 35)."""
    at, panels = study.sizes.index(study.since), []
    for pair in pairs:
        lines = []
        for name, points in study.crossing(pair.name, pair.other).items():
            x, y = ([100 * one for one in some] for some in zip(*points, strict=True))
            look = style.look(name, study.lines)
            begin = {**look, "markersize": 8, "markerfacecolor": style.PAGE}
            lines += [Line(name, look, x, y), Line("", begin, x[at : at + 1], y[at : at + 1])]
        title = f"{style.short(pair.name, 16)} / {style.short(pair.other, 16)}"
        across, up = (f"P({style.short(one, 22)}) (%)" for one in (pair.name, pair.other))
        panels.append(Panel(lines, title, across, up))
    return panels


def _sizes(study: ClassStudy) -> dict[str, Any]:
    """An axis of sizes."""
    ticks = {place: words.printable(size.removesuffix(" px")) for place, size in enumerate(study.sizes)}
    label = "size (px)" if all(size.endswith(" px") for size in study.sizes) else "size (px), or view"
    return {"x_ticks": ticks, "x_label": label}


def _mean(study: ClassStudy, metric: str, number: int, size: str) -> float:
    """A metric of a class at a size, the mean of all lines."""
    values = [float(getattr(one, metric)[number]) for one in study.at(size)]
    return sum(values) / len(values)


def _ends(study: ClassStudy, one: ClassEffect, number: int) -> list[str]:
    """Who or what has the lowest and the highest metric of a class."""
    if one.kind == "spread_of_models":
        values = {table.line: float(getattr(table, one.metric)[number]) for table in study.at(study.shown)}
    else:
        values = {size: _mean(study, one.metric, number, size) for size in study.sizes}
    ends = [pick(values, key=values.__getitem__) for pick in (min, max)]
    return [f"{_share(values[end])} ({end})" for end in ends]


def _share(value: float) -> str:
    return f"{100 * value:.2f}"


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}"


def _error(one: ClassEffect) -> str:
    return "-" if one.stderr is None else f"{100 * one.stderr:.2f}"
