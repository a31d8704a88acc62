"""Tables for the terminal: readable at 80 columns, without colour, and where only ASCII can be printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from sightline.errors import InputError
from sightline.reports import grids, series
from sightline.reports.content import SeenSizes
from sightline.reports.grids import TextTable
from sightline.reports.words import ASIDE, DASH, printable
from sightline.results.rows import ResultRow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# A longer run name is cut in the first column, to leave room for numbers.
_NAME_WIDTH = 30
# A longer line of words is hard to read.
_PARAGRAPH = 100
_SLIVER = 20
_BAR = 40


def print_accuracy(
    rows: Sequence[ResultRow], console: Console | None = None, *, seen: Mapping[str, SeenSizes] | None = None
) -> None:
    """Print a table of each metric by run and resolution, one for held-out fonts and one for other views than squares
    if they were measured; metrics that go with the main one are left to the page.

    Under each number stands where it lies with 95 %; of a tuned knob also its value. A resolution that all runs were
    trained at is marked "trained", one that all saw among others "seen"; the best of a column is bold and carries an
    asterisk, so that it is also seen where there is no bold. Where the columns do not fit the width of the console, the
    table continues below itself: no number is ever cut.

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
    found += [table for metric in metrics for table in grids.by_attack(study, metric)]
    found += [
        table for metric in metrics for by in study.parts(metric) if not {by, by.split(", ")[0]} & grids.BY.keys()
        for table in grids.by_part(study, metric, by)
    ]  # fmt: skip
    shown = [table for table in found if table is not None]
    for table in shown:
        for number, part in enumerate(_fitting(table, console)):
            _print_heading(console, table.caption + (", continued" if number else ""))
            console.print(part)
    limits = any(cell.limits for table in shown for line in table.lines for cell in line.cells)
    said = ["Below each number: where it lies with 95 %."] if limits else []
    extremes = sorted({table.extreme for table in shown if table.extreme})
    if extremes:
        said.append(f" *: {' or '.join(extremes)} of its column.")
    if said:
        console.print(" ".join(said), highlight=False)


def _fitting(table: TextTable, console: Console) -> Iterator[Table]:
    """Tables with as many columns each as the console is wide, at least one."""
    unbounded = console.options.update(max_width=10_000)
    first, last = 0, len(table.headings)
    while first < last:
        made = _numbers(table.part(first, last), _ascii_only(console))
        if last - first > 1 and console.measure(made, options=unbounded).maximum > console.width:
            last -= 1
        else:
            yield made
            first, last = last, len(table.headings)


def _numbers(table: TextTable, ascii_only: bool) -> Table:
    made = _empty_table(ascii_only)
    made.add_column(table.corner, no_wrap=True, overflow=_overflow(ascii_only), max_width=_NAME_WIDTH)
    for heading in table.headings:
        title = _text(heading.title, ascii_only)
        made.add_column(title.append(f"\n{heading.seen}" if heading.seen else ""), justify="right", no_wrap=True)
    for line in table.lines:
        name = _text(line.label, ascii_only, "" if line.colour else "dim")
        # So many lines below the value, then that of a tuned knob.
        depth = 2 if any(cell.limits for cell in line.cells) else 1 if line.colour and line.detail else 0
        if line.colour:
            tuned = any(cell.knob for cell in line.cells)
            for below in (*(line.detail, "")[:depth], *(["its value"] if tuned else [])):
                name.append(f"\n  {below}", style="dim")
        cells = []
        for cell in line.cells:
            # The blank keeps the decimal points under each other beside a marked number.
            value = "-" if cell.value == DASH else cell.value.replace(",", "")
            text = _text(value, ascii_only, "bold" if cell.best else "" if line.colour else "dim")
            text.append("*" if cell.best else " ")
            knob = [*cell.limits, *[""] * (depth - len(cell.limits)), cell.knob] if cell.knob else cell.limits
            for below in knob:
                text.append(f"\n{below} ", style="not bold dim")
            cells.append(text)
        made.add_row(name, *cells)
    return made


def simple_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, ascii_only: bool = False) -> Table:
    """A table of anything: `columns` are the headings, a row has a cell for each; None prints as a dash.

    The first column, taken to be a name, is never wrapped; columns of numbers alone are set flush right.

    Raises:
        InputError: a row has not as many cells as there are columns.
    """
    for row in rows:
        if len(row) != len(columns):
            raise InputError(f"a row of {len(row)} cells in a table of {len(columns)} columns: {list(row)!r}")
    table = _empty_table(ascii_only)
    for index, heading in enumerate(columns):
        cells = [row[index] for row in rows if row[index] is not None]
        numeric = bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)
        justify = "right" if numeric else "left"
        keep = index == 0 or numeric
        overflow = _overflow(ascii_only) if keep else "fold"
        said = [_shown(cell) for cell in cells]
        words = max((len(word) for cell in said for word in cell.split()), default=0)
        # No word is broken, and no column of text is a sliver.
        least = None if keep else min(max((len(cell) for cell in said), default=0), max(words, _SLIVER))
        table.add_column(_text(heading, ascii_only), justify=justify, no_wrap=keep, overflow=overflow, min_width=least)
    for row in rows:
        table.add_row(*(_text(_shown(cell), ascii_only) for cell in row))
    return table


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str | None = None,
    console: Console | None = None,
) -> None:
    """Print `simple_table` in a way that the console can show: where a column would break a word, a paragraph a row."""
    console = console or _console()
    if title:
        _print_heading(console, title)
    table = simple_table(columns, rows, ascii_only=_ascii_only(console))
    if rows and len(columns) > 1 and not _share_room(table, console):
        _print_stacked(columns, rows, console)
    else:
        console.print(table)


def print_bars(lines: Sequence[tuple[str, int]]) -> None:
    """Print a name, a number and a bar a line; the longest is that of the largest number."""
    most = max((count for _, count in lines), default=0) or 1
    wide = max((len(name) for name, _ in lines), default=0)
    for name, count in lines:
        print(f"  {name:<{wide}} {count:>8,} {'#' * round(_BAR * count / most)}".rstrip())


def _share_room(table: Table, console: Console) -> bool:
    """Whether the console has room for every column without breaking a word; each gets its width then.

    Rich alone narrows the widest column below its `min_width`, widens it again, and crops the last one.
    """
    from rich.measure import Measurement

    wide = console.options.update(max_width=10_000)
    most, least = [], []
    for column in table.columns:
        cells = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
        most.append(max(cell.maximum for cell in cells))
        shortest = max(*(cell.minimum for cell in cells), column.min_width or 0)
        least.append(most[-1] if column.no_wrap else min(shortest, most[-1]))
    # What stands between the columns takes its part.
    room = console.width - (console.measure(table, options=wide).maximum - sum(most)) - sum(least)
    for column, widest, width in zip(table.columns, most, least, strict=True):
        more = max(min(widest - width, room), 0)
        column.width, room = width + more, room - more
    return room >= 0


def _print_stacked(columns: Sequence[str], rows: Sequence[Sequence[object]], console: Console) -> None:
    """A row as its name and, on lines of their own, its other cells with their headings; no word is broken."""
    import textwrap

    ascii_only = _ascii_only(console)
    width = max(min(console.width, _PARAGRAPH) - 1, 20)
    for row in rows:
        console.print(_text(_shown(row[0]), ascii_only, "bold"), soft_wrap=True)
        for heading, cell in zip(columns[1:], row[1:], strict=True):
            if cell is not None:
                said = printable(f"{heading}: {_shown(cell)}" if heading else _shown(cell))
                for line in textwrap.wrap(
                    said, width, initial_indent="  ", subsequent_indent="    ",
                    break_long_words=False, break_on_hyphens=False,
                ):  # fmt: skip
                    console.print(_text(line, ascii_only), soft_wrap=True)


def _print_heading(console: Console, text: str) -> None:
    # Not rich's own table title, which is wrapped at the width of the table.
    console.print(_text(text, _ascii_only(console), "bold"))


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _text(text: str, ascii_only: bool, style: str = "") -> Text:
    from rich.text import Text

    shown = printable(text)
    return Text(shown.encode("ascii", "replace").decode("ascii") if ascii_only else shown, style)


def _console() -> Console:
    from rich.console import Console

    return Console()


def _ascii_only(console: Console) -> bool:
    return not console.encoding.lower().startswith("utf")


def _overflow(ascii_only: bool) -> Literal["crop", "ellipsis"]:
    # The ellipsis is a character that an ASCII terminal cannot print.
    return "crop" if ascii_only else "ellipsis"


def _empty_table(ascii_only: bool) -> Table:
    from rich import box
    from rich.table import Table

    # Rich's own fallback draws a full frame, which costs columns: this is its simple head in ASCII.
    plain = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
    return Table(box=plain if ascii_only else box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
