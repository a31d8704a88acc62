"""Tables of what was measured inside models: a line a model and size, a column a layer; for a page and a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.reports import style, words
from sightline.reports.analysis_plots import sizes_of
from sightline.reports.grids import GridLine, Heading, TableCell, TextTable
from sightline.reports.tables import print_table
from sightline.results.analysis import LAYERS, AnalysisRow

Group = tuple[str, str]
"""A measure and one of its quantities."""
_ALL, _NONE = 1e6, 1e7
_COLUMNS = {-1: "in", _ALL: "all layers", _NONE: "value"}


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
    columns = sorted({_place(row) for row in rows})
    lines = []
    for size in sizes_of(rows):
        for name in (one for one in models if any(row.run == one and row.size == size for row in rows)):
            own = {_place(row): row for row in rows if row.run == name and row.size == size}
            lines.append(
                GridLine(
                    words.printable(name),
                    style.colour(name, models),
                    [_cell(own.get(place)) for place in columns],
                    below=next(iter(own.values())).shown,
                )
            )
    headings = [Heading(_COLUMNS.get(place) or f"layer {place}") for place in columns]
    return TextTable(words.heading(rows[0]), headings, lines, "model")


def _place(row: AnalysisRow) -> float:
    """Where a row's number stands: what has no layers and what is of all of them after the last."""
    return row.layer if row.layer is not None else _ALL if row.of_all_layers else _NONE


def _cell(row: AnalysisRow | None) -> TableCell:
    return TableCell(words.DASH) if row is None else TableCell(words.number(row.value, row.unit), words.limits(row))


def print_layers(rows: Sequence[AnalysisRow]) -> None:
    """What is drawn, for the terminal, a table a measure: the first layer, the one in the middle, and the last."""
    drawn = groups_of([row for row in rows if row.figure == LAYERS and not row.of_all_layers])
    for measure in dict.fromkeys(measure for measure, _ in drawn):
        lines, groups = [], [some for (own, _), some in drawn.items() if own == measure]
        entering = all(min(map(_place, some)) == -1 for some in groups)
        for some in groups:
            for size in sizes_of(some):
                for name in models_of([row for row in some if row.size == size]):
                    own = sorted((row for row in some if row.run == name and row.size == size), key=_place)
                    shown = [own[0], own[len(own) // 2], own[-1]] if len(own) > 2 else own
                    told = [words.number(row.value, row.unit) for row in shown]
                    left = [""] * (3 - len(told))
                    lines.append((words.heading(some[0]), own[0].shown, style.short(name), *told, *left))
        # Some begin with what enters the first layer.
        first = "in" if entering else "first"
        title = f"{words.capital(words.title(measure))}: {first}, middle and last layer"
        print_table(("quantity", "size", "model", first, "middle", "last"), lines, title=title)
