"""What was found inside models: one HTML file that needs nothing else, a part of a notebook or a report, a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from sightline.analysis.rows import AnalysisLike, by_layer, other_of, rows_of
from sightline.reports import maps, page, style, words
from sightline.reports.content import Sample
from sightline.reports.lines import Panel, lines_figure, measured_line
from sightline.reports.tables import Cell, Head, Table, measured_cell, print_table, table_of
from sightline.results.analysis import LAYERS, AnalysisRow, Size, size_words
from sightline.results.rows import dump_rows

# Characters of figures: up to which each is there for a wide and a narrow page, and up to which maps are drawn, so that
# a page with its tables stays below 10 MB.
_BOTH_WIDTHS, _MAPS = 3_000_000, 7_000_000
# Models whose heads are drawn one by one: of more, dots hide what they are of.
_MOST_WITH_HEADS = 3
_ALL, _NONE = 1e6, 1e7
_COLUMNS = {-1: "in", _ALL: "all layers", _NONE: "value"}
Heads = Mapping[tuple[str, Size | None], Mapping[int, Sequence[float]]]
"""The mean over images of each head, by model and size, then by layer."""


Section = dict[str, Any]
"""One measure: its `name` and `title`, `pictures` (title, figure and words of curves and maps), `tables` of what the
curves show, and whose maps found no room (`left_out`)."""


def render(
    rows: Sequence[AnalysisRow],
    found: Sequence[AnalysisLike],
    command: str,
    *,
    figures: dict[str, str] | None = None,
    advance: Callable[[int], None] | None = None,
    shown: Sequence[Sample] = (),
) -> str:
    """The HTML text; equal rows and arrays give equal text.

    Args:
        rows: as `rows_of` made them of `found`.
        found: of every model and measure, whose maps and heads are drawn.
        command: the line that makes it again.
        figures: filled with every figure of the page as a file of its own: by its name SVG text on its own ground.
        advance: called with 1 as each figure is drawn; of `count_figures` of them.
        shown: the first images, which maps are of.
    """
    models = _models(rows, found)
    title = f"Inside {style.short(models[0])}" if len(models) == 1 else f"Inside {len(models)} models"
    content = _content(rows, found, "inside", {} if figures is None else figures, advance)
    return page.render("analysis.html", title=title, command=command, shown=shown, **content)


def count_figures(rows: Sequence[AnalysisRow], found: Sequence[AnalysisLike]) -> int:
    """How many figures a page has, those too for which it has no room."""
    return len(list(_drawings(rows, found, _models(rows, found))))


def shown(found: Sequence[AnalysisLike]) -> str:
    """The same as a part of another page, a notebook's: without the page around it."""
    rows = [row for one in found for row in rows_of(one)]
    # A notebook is one page: what two cells show has ids of its own.
    mark = sha256(dump_rows(rows).encode()).hexdigest()[:8]
    return page.render("analysis_part.html", **_content(rows, found, f"n{mark}", {}))


def by_layer_sections(rows: Sequence[AnalysisRow], models: Sequence[str]) -> list[Section]:
    """What is drawn by layer, of rows alone, a section a measure; models are named in the order of another page's."""
    return [one for one in _sections(rows, (), models, "layers", {}) if one["pictures"]]


def _models(rows: Sequence[AnalysisRow], found: Sequence[AnalysisLike]) -> list[str]:
    """In the order in which they were measured."""
    return list(dict.fromkeys([*(row.run for row in rows), *(one.model for one in found)]))


def _content(
    rows: Sequence[AnalysisRow],
    found: Sequence[AnalysisLike],
    prefix: str,
    kept: dict[str, str],
    advance: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    models, sizes = _models(rows, found), sizes_of(rows)
    encodings = {one.model: one.encoding for one in found} | {row.run: row.encoding for row in rows}
    told = {name: words.listed(sorted({getattr(row, name) for row in rows if getattr(row, name)}) or [""])
            for name in ("data", "split", "hardware", "commit")}  # fmt: skip
    counts = sorted({len(names) for one in found for names in one.names.values()})
    return {
        "models": [(name, style.colour(name, models), encodings[name]) for name in models],
        "images": words.span([f"{count:,}" for count in counts]) if counts else "",
        "sizes": words.listed([size_words(size) for size in sizes]) if sizes else "",
        "sections": _sections(rows, found, models, prefix, kept, advance),
        **told,
    }


def _sections(
    rows: Sequence[AnalysisRow],
    found: Sequence[AnalysisLike],
    models: Sequence[str],
    prefix: str,
    kept: dict[str, str],
    advance: Callable[[int], None] | None = None,
) -> list[Section]:
    """A section a measure. All curves are drawn, and then as many maps as the page has room for."""
    groups, used = _groups(rows), 0
    measures = dict.fromkeys([*(one.measure for one in found), *(measure for measure, _ in groups)])
    sections = {
        measure: {"name": measure, "title": words.capital(words.title(measure)), "pictures": [], "tables": [],
                  "left_out": [], "said": words.about()["sections"].get(measure, "")} for measure in measures
    }  # fmt: skip
    for (measure, _), some in groups.items():
        sections[measure]["tables"].append(by_layer_table(some, models))
    for place, (measure, file, of, picture, draw) in enumerate(_drawings(rows, found, models)):
        if advance is not None:
            advance(1)
        if of and used >= _MAPS:
            sections[measure]["left_out"].append(of)
            continue
        svg = draw(narrow=False)
        kept[file] = style.standalone(svg)
        # Of many models there is room for one width, which a narrow page shrinks.
        narrow = draw(narrow=True) if of or used < _BOTH_WIDTHS else ""
        figure = style.pair(svg, narrow, f"{prefix}{place}", picture["title"])
        used += len(figure)
        sections[measure]["pictures"].append({**picture, "figure": figure})
    return list(sections.values())


def _drawings(
    rows: Sequence[AnalysisRow], found: Sequence[AnalysisLike], models: Sequence[str]
) -> Iterator[tuple[str, str, str, dict[str, str], Callable[..., str]]]:
    """Curves, or points of what has no layers, and then maps: of which measure, as which file, whose map ("" of
    curves), title and words, and what draws it."""
    for (measure, name), some in _groups(rows).items():
        if some[0].figure != LAYERS:
            continue
        layered = [row for row in some if row.layer is not None]
        heads = heads_of(found, measure, name) if len({row.run for row in some}) <= _MOST_WITH_HEADS else {}
        panels = curves(layered, models, heads) if layered else points(some, models)
        bars = " Bars: where the mean lies with 95 % for other images." if any(row.interval for row in some) else ""
        dots = (" Small dots: heads, each the mean of the images." if bars else " Small dots: heads.") if heads else ""
        picture = {"title": words.heading(some[0]), "words": f"{_sentence(some[0].words)}{bars}{dots}"}
        yield measure, f"{measure}.{name}.svg", "", picture, partial(lines_figure, panels, height=2.5)
    for one in found:
        other = other_of(one)
        of = f" of {one.model} (down) with {other} (across)" if other else f", {one.model}" if len(models) > 1 else ""
        whose = "+".join(str(models.index(model)) for model in (one.model, other) if model in models)
        for name, quantity in one.quantities.items():
            if maps.is_drawn(one, name):
                said = f"{_sentence(quantity.words)} {maps.explains(one, name)}".strip()
                picture = {"title": f"{words.capital(words.title(name))}{words.printable(of)}", "words": said}
                draw, pair = partial(maps.small_multiples, one, name), f"{one.model} with {other}"
                yield one.measure, f"{one.measure}.{name}.{whose}.svg", pair if other else one.model, picture, draw


def _sentence(text: str) -> str:
    text = words.capital(text.strip())
    return f"{text}." if text and text[-1] not in ".!?" else text


def _groups(rows: Sequence[AnalysisRow]) -> dict[tuple[str, str], list[AnalysisRow]]:
    """The rows of each quantity of each measure, in their order."""
    groups: dict[tuple[str, str], list[AnalysisRow]] = {}
    for row in rows:
        groups.setdefault((row.measure, row.metric), []).append(row)
    return groups


def heads_of(found: Sequence[AnalysisLike], measure: str, name: str) -> Heads:
    """What each head has of a quantity, the mean over images; nothing where it is not by head."""
    heads: dict[tuple[str, Size | None], dict[int, Sequence[float]]] = {}
    for one in found:
        quantity = one.quantities.get(name) if one.measure == measure else None
        if quantity is None or set(quantity.axes) - {"image"} != {"layer", "head"}:
            continue
        for size in (size for size in one.sizes if name in one.arrays[size]):
            layers = by_layer(one.arrays[size][name], quantity.axes, one.about.get("depth"), heads=True)
            place = one.model, None if size == (0, 0) else size
            heads[place] = {layer: np.asarray(values).mean(0).tolist() for layer, values in layers if layer is not None}
    return heads


def sizes_of(rows: Sequence[AnalysisRow]) -> list[Size | None]:
    """At which something was measured, by area; the images' own last."""
    sizes = {row.size for row in rows}
    return sorted(sizes, key=lambda size: (math.inf, 0, 0) if size is None else (size[0] * size[1], *size))


def curves(rows: Sequence[AnalysisRow], models: Sequence[str], heads: Heads | None = None) -> list[Panel]:
    """A quantity by layer, a panel a size, one line a model with the 95 % of its mean over images; small dots are heads
    (ViT figure 11, LookHere figures 4, 15 to 17).

    Args:
        rows: of one quantity.
        models: all that the page speaks of, whose colours are the same in all of its figures.
        heads: as `heads_of`.
    """
    panels = []
    for size in sizes_of(rows):
        here = sorted((row for row in rows if row.size == size), key=lambda row: row.layer or 0)
        lines = []
        for name in models:
            own = {row.layer or 0: row for row in here if row.run == name}
            layers = (heads or {}).get((name, size), {}).items()
            dots = {layer: [words.scaled(one, rows[0].unit) for one in values] for layer, values in layers}
            lines += [measured_line(name, style.look(name, models), own, dots=dots)] if own else []
        layers = range(min(row.layer or 0 for row in here), max(row.layer or 0 for row in here) + 1)
        ticks = {layer: "in" if layer < 0 else str(layer) for layer in layers}
        panels.append(Panel(lines, _panel_title(here, size), "layer", _axis(rows[0]), x_ticks=ticks))
    return panels


def points(rows: Sequence[AnalysisRow], models: Sequence[str]) -> list[Panel]:
    """One number a model and size, what has no layers, as points with their intervals, one column a size."""
    sizes, lines = sizes_of(rows), []
    for name in models:
        own = {sizes.index(row.size): row for row in rows if row.run == name}
        lines += [measured_line(name, {**style.look(name, models), "linewidth": 0}, own)] if own else []
    ticks = {place: size_words(size) for place, size in enumerate(sizes)}
    return [Panel(lines, "", "size of the images", _axis(rows[0]), x_ticks=ticks)]


def _axis(row: AnalysisRow) -> str:
    """ "distance (cells)"; of long names the unit stands alone."""
    said = words.axis(row)
    return said if len(said) <= 30 else words.unit(row.unit) or said


def _panel_title(rows: Sequence[AnalysisRow], size: Size | None) -> str:
    """ "64 px (8 x 8 patches)", where all models have patches of one size."""
    patches = {row.patch_size for row in rows}
    if size is None or len(patches) != 1 or not (patch := patches.pop()):
        return size_words(size)
    return f"{size_words(size)} ({-(-size[0] // patch)} {words.TIMES} {-(-size[1] // patch)} patches)"


def by_layer_table(rows: Sequence[AnalysisRow], models: Sequence[str]) -> Table:
    """A quantity: a line a model and size, a column a layer, each mean with its interval."""
    columns = {place: Head(_COLUMNS.get(place) or f"layer {place}") for place in sorted(map(_place, rows))}
    lines: dict[Head, dict[Head, Cell | str]] = {}
    for row in sorted(rows, key=lambda row: (sizes_of(rows).index(row.size), models.index(row.run))):
        head = Head(words.printable(row.run), row.shown, style.colour(row.run, models))
        lines.setdefault(head, {})[columns[_place(row)]] = measured_cell(row)
    return table_of(words.heading(rows[0]), lines, "model", columns.values())


def _place(row: AnalysisRow) -> float:
    """Where a row's number stands: what has no layers and what is of all of them after the last."""
    return row.layer if row.layer is not None else _ALL if row.of_all_layers else _NONE


def print_layers(rows: Sequence[AnalysisRow]) -> None:
    """For the terminal, a line a measure, size and model: its first quantity in the first layer, the one in the middle,
    and the last."""
    first: dict[str, list[AnalysisRow]] = {}
    for (measure, _), some in _groups([row for row in rows if row.figure == LAYERS and _place(row) != -1]).items():
        first.setdefault(measure, [row for row in some if not row.of_all_layers])
    lines = []
    for measure, some in first.items():
        for size in sizes_of(some):
            for name in dict.fromkeys(row.run for row in some if row.size == size):
                own = sorted((row for row in some if row.run == name and row.size == size), key=_place)
                ends = [own[0], own[len(own) // 2], own[-1]] if len(own) > 2 else own
                told = [*(words.number(row.value, row.unit) for row in ends), "", ""][:3]
                lines.append((words.heading(replace(own[0], metric=measure)), own[0].shown, style.short(name), *told))
    if lines:
        print_table(("mean of the images", "size", "model", "first layer", "middle", "last"), lines)
