"""Tables of what was measured inside models: a line a model and size, a column a layer; for a page and a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.analysis_rows import LAYERS, AnalysisRow
from sightline.reports import style, words
from sightline.reports.analysis_plots import sizes_of
from sightline.reports.grids import Cell, GridLine, Heading, TextTable
from sightline.reports.tables import print_table

Group = tuple[str, str]
"""A measure and one of its quantities."""


def models_of(rows: Sequence[AnalysisRow]) -> list[str]:
    """In the order in which they were measured."""
    return list(dict.fromkeys(row.run for row in rows))


def groups_of(rows: Sequence[AnalysisRow]) -> dict[Group, list[AnalysisRow]]:
    """The rows of each quantity of each measure, in their order."""
    groups: dict[Group, list[AnalysisRow]] = {}
    for row in rows:
        groups.setdefault((row.measure, row.metric), []).append(row)
    return groups


def by_layer_table(rows: Sequence[AnalysisRow], models: Sequence[str]) -> TextTable:
    """A quantity: a line a model and size, a column a layer, each mean with its interval."""
    layers = sorted({row.layer for row in rows if row.layer is not None})
    columns: list[int | None] = [*layers, *([None] if any(row.layer is None for row in rows) else [])]
    lines = []
    for size in sizes_of(rows):
        for name in (one for one in models if any(row.run == one and row.size == size for row in rows)):
            own = {row.layer: row for row in rows if row.run == name and row.size == size}
            lines.append(
                GridLine(
                    words.printable(name),
                    style.colour(name, models),
                    [_cell(own.get(layer)) for layer in columns],
                    below=next(iter(own.values())).shown,
                )
            )
    headings = [Heading(_column(layer)) for layer in columns]
    return TextTable(words.heading(rows[0]), headings, lines, "model")


def _column(layer: int | None) -> str:
    return "value" if layer is None else "in" if layer < 0 else f"layer {layer}"


def _cell(row: AnalysisRow | None) -> Cell:
    return Cell(words.DASH) if row is None else Cell(words.number(row.value, row.unit), words.limits(row))


def print_layers(rows: Sequence[AnalysisRow]) -> None:
    """What is drawn, for the terminal: the first layer, the one in the middle, and the last."""
    lines = []
    for some in groups_of([row for row in rows if row.figure == LAYERS]).values():
        for size in sizes_of(some):
            for name in models_of([row for row in some if row.size == size]):
                own = [row for row in some if row.run == name and row.size == size]
                own.sort(key=lambda row: -1 if row.layer is None else row.layer)
                shown = [own[0], own[len(own) // 2], own[-1]] if len(own) > 2 else own
                told = [words.number(row.value, row.unit) for row in shown]
                lines.append((words.heading(some[0]), own[0].shown, style.short(name), *told, *[""] * (3 - len(told))))
    if lines:
        title = "Inside: means over images, and over heads, in three layers of all"
        print_table(("quantity", "size", "model", "first", "middle", "last"), lines, title=title)
