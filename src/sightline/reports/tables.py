"""Tables for the terminal, by rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sightline.errors import InputError
from sightline.reports import grids, series
from sightline.reports.content import SeenSizes
from sightline.reports.grids import TableCell, TextTable
from sightline.reports.words import ASIDE, DASH, printable
from sightline.results.rows import ResultRow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_BAR = 40


def print_accuracy(
    rows: Sequence[ResultRow], console: Console | None = None, *, seen: Mapping[str, SeenSizes] | None = None
) -> None:
    """Print a table of each metric by run and resolution, one for held-out fonts and one for other views than squares
    if they were measured; metrics that go with the main one are left to the page.

    Under each number stands where it lies with 95 %; of a tuned knob also its value. A resolution that all runs were
    trained at is marked "trained", one that all saw among others "seen"; the best of a size is bold and carries an
    asterisk, so that it is also seen where there is no bold.

    Args:
        seen: run -> the sizes of its training, the one that its rows name unless given.

    Raises:
        InputError: there are no rows, or of several data sets.
    """
    console = console or _console()
    study = series.Study.of(rows, seen=seen)
    metrics = [one.metric for one in study.metrics() if one.metric == study.main.metric or one.metric not in ASIDE]
    found = [grids.by_resolution(study, metric) for metric in metrics]
    found += [grids.held_out(study), *(grids.by_view(study, metric) for metric in metrics)]
    for metric in metrics:
        found += grids.by_attack(study, metric)
        aside = (by for by in study.parts(metric) if not {by, by.split(", ")[0]} & grids.BY.keys())
        found += [table for by in aside for table in grids.by_part(study, metric, by)]
    shown = [table for table in found if table is not None]
    for table in shown:
        console.print(_text(table.caption, "bold"))
        console.print(_numbers(table))
    limits = any(cell.limits for table in shown for line in table.lines for cell in line.cells)
    extremes = sorted({table.extreme for table in shown if table.extreme})
    said = ["Below each number: where it lies with 95 %."] * limits
    said += [f"*: {' or '.join(extremes)} at its size."] * bool(extremes)
    if said:
        console.print(" ".join(said), highlight=False)


def _numbers(table: TextTable) -> Table:
    """A line a size and a column a run, or the other way where that is narrower."""
    seen = {heading.title: heading.seen for heading in table.headings}
    turned = table.turned()
    made = _empty_table()
    made.add_column(turned.corner, overflow="fold")
    for heading in turned.headings:
        made.add_column(_lines(heading.title, seen.get(heading.title, "")), justify="right", overflow="fold")
    for line in turned.lines:
        # Under the name stand what the page has below it, and what of a size all runs saw.
        name = _lines(line.label, line.detail, seen.get(line.label, ""))
        made.add_row(name, *(_cell(cell) for cell in line.cells))
    return made


def _cell(cell: TableCell) -> Text:
    # The blank keeps the decimal points under each other beside a marked number.
    value = "-" if cell.value == DASH else cell.value.replace(",", "")
    text = _text(value, "bold" if cell.best else "").append("*" if cell.best else " ")
    knob = f"knob {cell.knob}" if cell.knob[:1].isdigit() else cell.knob
    for below in (*cell.limits, knob):
        text.append(f"\n{below} " if below else "", style="not bold dim")
    return text


def _lines(first: str, *below: str) -> Text:
    text = _text(first)
    for line in filter(None, below):
        text.append(f"\n{printable(line)}", style="dim")
    return text


def simple_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A table of anything: `columns` are the headings, a row has a cell for each; None prints as a dash. Columns of
    numbers alone are set flush right. A column is at least as wide as its longest word, so that names can be copied.

    Raises:
        InputError: a row has not as many cells as there are columns.
    """
    for row in rows:
        if len(row) != len(columns):
            raise InputError(f"a row of {len(row)} cells in a table of {len(columns)} columns: {list(row)!r}")
    table = _empty_table()
    for index, heading in enumerate(columns):
        cells = [row[index] for row in rows if row[index] is not None]
        numeric = bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)
        words = " ".join(_shown(row[index]) for row in rows).split() + ([heading] if numeric else [])
        table.add_column(
            _text(heading),
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
            min_width=max(map(len, words), default=0),
        )
    for row in rows:
        table.add_row(*(_text(_shown(cell)) for cell in row))
    return table


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str | None = None,
    console: Console | None = None,
) -> None:
    """Print `simple_table`, as wide as the console."""
    console = console or _console()
    if title:
        console.print(_text(title, "bold"))
    table = simple_table(columns, rows)
    smallest = table.__rich_measure__(console, console.options.update(max_width=10_000)).minimum
    console.width = max(console.width, smallest)
    console.print(table)


def print_bars(lines: Sequence[tuple[str, int]]) -> None:
    """Print a name, a number and a bar a line; the longest is that of the largest number."""
    most = max((count for _, count in lines), default=0) or 1
    wide = max((len(name) for name, _ in lines), default=0)
    for name, count in lines:
        print(f"  {name:<{wide}} {count:>8,} {'#' * round(_BAR * count / most)}".rstrip())


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(printable(text), style)


def _console() -> Console:
    from rich.console import Console

    return Console()


def _empty_table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
