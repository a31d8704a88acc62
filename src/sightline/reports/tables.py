"""Tables of plain text, for a page, a terminal, CSV and LaTeX: cells with their intervals, by line and column."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING, Any

from sightline.reports import words
from sightline.reports.words import DASH, printable
from sightline.results.rows import MetricValue

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

_BAR = 40
# A word so long in the first column would take most of a phone's width.
_LONG = 20
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\u00a0": "~", "\N{MULTIPLICATION SIGN}": r"$\times$",
    DASH: "--", "<": "$<$", ">": "$>$",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a line or a column: `below` is a smaller second line, `detail` tells heads of one title apart, `seen`
    says whether all runs saw a size in training; a run's has its `colour`."""

    title: str
    below: str = ""
    colour: str = ""
    detail: str = ""
    seen: str = ""

    @property
    def name(self) -> str:
        return self.title + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and the `limits` of its interval, as text; what stands `below` is smaller. `marked`: at a size that the
    run saw in training. `words` are broken where a column is narrow."""

    value: str = DASH
    limits: Sequence[str] = ()
    best: bool = False
    below: str = ""
    marked: bool = False
    words: bool = False

    @property
    def interval(self) -> str:
        return words.interval(self.limits)


@dataclass(frozen=True, slots=True)
class Table:
    """Cells by line and column; `corner` heads the first column, `extreme` says what the best numbers are ("highest"),
    "" if nothing."""

    caption: str
    columns: Sequence[Head]
    lines: Sequence[tuple[Head, Sequence[Cell]]]
    corner: str = "run"
    extreme: str = ""

    @property
    def long(self) -> bool:
        """Whether a word of the first column would take most of a phone's width."""
        return any(len(word) > _LONG for head, _ in self.lines for word in head.name.split())

    def turned(self) -> Table:
        """With a column a run where that is the narrower way: a phone shows few columns."""
        return self if len(self.lines) >= len(self.columns) else self.transposed()

    def transposed(self) -> Table:
        """With a column a line."""
        cells = list(zip(*(cells for _, cells in self.lines), strict=True))
        lines = list(zip(self.columns, cells, strict=True))
        return replace(self, columns=[head for head, _ in self.lines], lines=lines, corner="")


def table_of(
    caption: str,
    lines: Mapping[Head, Mapping[Head, Cell | str]],
    corner: str = "run",
    columns: Iterable[Head] | None = None,
) -> Table:
    """A table of what stands in each line by column; a line that lacks one has a dash there. Columns are in the order
    in which they come, unless given."""
    heads = list(columns or dict.fromkeys(head for line in lines.values() for head in line))
    made = [(head, [_as_cell(line.get(column, Cell())) for column in heads]) for head, line in lines.items()]
    return Table(caption, heads, made, corner)


def text_table(caption: str, columns: Sequence[Head | str], lines: Sequence[Sequence[Any]]) -> Table:
    """A table of texts, heads and cells: a line has its head and a cell for each column but the first, the corner."""
    corner, *heads = map(_as_head, columns)
    return Table(caption, heads, [(_as_head(name), [*map(_as_cell, cells)]) for name, *cells in lines], corner.title)


def _as_head(one: Head | str) -> Head:
    return one if isinstance(one, Head) else Head(one)


def _as_cell(one: Cell | str) -> Cell:
    return one if isinstance(one, Cell) else Cell(one)


def measured_cell(one: MetricValue) -> Cell:
    """A number with its interval."""
    return Cell(words.number(one.value, one.unit), words.limits(one))


def csv_of(tables: Mapping[str, Table]) -> str:
    """A line a cell: table, its caption, line, column, what stands below that, value, low, high."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", "caption", "line", "below_line", "column", "below", "value", "low", "high"))
    for name, table in tables.items():
        for line, cells in table.lines:
            for column, cell in zip(table.columns, cells, strict=True):
                limits = list(cell.limits) or ["", ""]
                row = (name, table.caption, line.name, line.below, column.title, column.below, cell.value, *limits)
                writer.writerow([one.replace("\u00a0", " ") for one in row])
    return text.getvalue()


def latex_of(tables: Mapping[str, Table]) -> str:
    """One `table` a table, of plain LaTeX: it needs no package. Intervals stand small behind their numbers."""
    made = []
    for name, table in tables.items():
        rows = [[(table.corner, "", False), *((head.title, head.below, False) for head in table.columns)]]
        for head, cells in table.lines:
            rows.append([(head.name, head.below, False), *((one.value, one.interval, one.best) for one in cells)])
        heads, *lines = [" & ".join(_latex(*cell) for cell in row) + r" \\" for row in rows]
        made += [
            r"\begin{table}", rf"\caption{{{escaped(table.caption)}}}", rf"\label{{tab:{name}}}",
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\hline", heads, r"\hline", *lines, r"\hline",
            r"\end{tabular}", r"\end{table}", "",
        ]  # fmt: skip
    return "\n".join(made)


def _latex(value: str, small: str, best: bool) -> str:
    shown = rf"\textbf{{{escaped(value)}}}" if best else escaped(value)
    return shown + (rf" {{\scriptsize {escaped(small)}}}" if small else "")


def escaped(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return text.translate(_LATEX)


def print_cells(table: Table, console: Console | None = None) -> None:
    """Print a table under its caption. Beside each number stands its interval, below it where there is no room; the
    best is bold and carries an asterisk, so that it is also seen where there is no bold."""
    console = console or _console()
    # In the way that fits; where none does, names break where the console folds them.
    ways = [_rich(one, beside) for beside in (True, False) for one in (table, table.transposed())]
    free = console.options.update(max_width=10_000)
    made = next((one for one in ways if one.__rich_measure__(console, free).maximum <= console.width), ways[2])
    console.print(_text(table.caption, "bold"))
    console.print(made)


def _rich(table: Table, beside: bool) -> RichTable:
    made = _empty_table()
    made.add_column(table.corner, overflow="fold")
    for head in table.columns:
        # What all runs saw of a size, and what a run's parameter is; the page alone has what stands below a size.
        made.add_column(_lines(head.title, head.detail, head.seen), justify="right", overflow="fold")
    # A blank keeps the decimal points under each other beside a marked number.
    plain = " " if any(cell.best for _, cells in table.lines for cell in cells) else ""
    for head, cells in table.lines:
        made.add_row(_lines(head.title, head.detail, head.seen), *(_cell(cell, beside, plain) for cell in cells))
    return made


def _cell(cell: Cell, beside: bool, plain: str) -> Text:
    digits = cell.value.replace(",", "")
    value = "-" if cell.value == DASH else digits if digits.isdigit() else cell.value.replace("\u00a0", " ")
    text = _text(value, "bold" if cell.best else "")
    text.append("*" if cell.best else plain)
    interval = cell.interval.replace("\u00a0", " ")
    if interval:
        text.append(f" {interval}" if beside else "\n" + interval.replace(" ", "\n"), style="not bold dim")
    if cell.below:
        text.append(f"\n{cell.below}{plain}", style="not bold dim")
    return text


def _lines(first: str, *below: str) -> Text:
    text = _text(first.replace("\u00a0", " "))
    for line in filter(None, below):
        text.append(f"\n{printable(line)}", style="dim")
    return text


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table of anything, as wide as the console, or as its longest words need, so that names can be copied.
    None prints as a dash; columns of numbers alone are set flush right.

    Args:
        columns: the headings.
        rows: a cell for each.
    """
    console, table = _console(), _empty_table()
    if title:
        console.print(_text(title, "bold"))
    for index, heading in enumerate(columns):
        cells = [row[index] for row in rows if row[index] is not None]
        numeric = bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)
        longest = max(map(len, [*" ".join(map(_shown, cells)).split(), heading if numeric else ""]))
        justify = "right" if numeric else "left"
        table.add_column(_text(heading), justify=justify, no_wrap=numeric, overflow="fold", min_width=longest)
    for row in rows:
        table.add_row(*(_text(_shown(cell)) for cell in row))
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
    if cell is None or isinstance(cell, bool):
        return {None: "-", True: "yes", False: "no"}[cell]
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:g}" if isinstance(cell, float) else str(cell)


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(printable(text), style)


def _console() -> Console:
    from rich.console import Console

    return Console()


def _empty_table() -> RichTable:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
