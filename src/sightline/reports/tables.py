"""Tables for the terminal: readable at 80 columns, without colour, and where only ASCII can be printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from sightline.errors import InputError
from sightline.reports import series
from sightline.reports.content import SeenSizes
from sightline.results import ResultRow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# A longer run name is cut in the first column, to leave room for numbers.
_NAME_WIDTH = 30
# A longer line of words is hard to read.
_PARAGRAPH = 100
_SLIVER = 20


def accuracy_table(
    rows: Sequence[ResultRow],
    *,
    metric: str = "top1",
    split: str | None = None,
    resolutions: Sequence[int] | None = None,
    seen: Mapping[str, SeenSizes] | None = None,
    ascii_only: bool = False,
) -> Table:
    """Accuracy in percent, a line a run and a column a resolution; under each number where it lies with 95 %.

    A resolution that all runs were trained at is marked "trained", one that all saw among others "seen"; the best of a
    column is bold and carries an asterisk, so that it is also seen where there is no bold. A run with a default and a
    tuned knob has two lines. `split` is the test split unless given; `resolutions` chooses columns (all); `seen` are
    the sizes of each run's training, the one that its rows name unless given.

    Raises:
        InputError: no row has this metric on this split.
    """
    series.check_rows(rows)
    split = split or series.main_split(rows)
    chosen = [line for line in series.lines(rows, metric, split=split, seen=seen) if line.points]
    if not chosen:
        raise InputError(f"no row has metric {metric} on split {split}")
    shown = list(resolutions) if resolutions is not None else series.resolutions(chosen)
    table = _numbers_table(ascii_only)
    for resolution in shown:
        _add_number(table, f"{resolution} px" + _mark(resolution, chosen))
    for index, line in enumerate(chosen):
        cells = []
        for resolution in shown:
            best = index in series.best_lines(chosen, resolution)
            cells.append(_cell(line, line.points.get(resolution), best))
        table.add_row(_name(line, ascii_only), *cells)
    _add_counts(table, [[line.points.get(resolution) for line in chosen] for resolution in shown])
    return table


def view_table(rows: Sequence[ResultRow], *, split: str | None = None, ascii_only: bool = False) -> Table | None:
    """As `accuracy_table`, a column a view that is no square of one size; None where none was measured."""
    series.check_rows(rows)
    chosen = [line for line in series.lines(rows, split=split or series.main_split(rows)) if line.views]
    if not chosen:
        return None
    views = series.views(chosen)
    table = _numbers_table(ascii_only)
    for view in views:
        _add_number(table, view)
    for line in chosen:
        cells = [_cell(line, line.views.get(view), False) for view in views]
        table.add_row(_name(line, ascii_only), *cells)
    _add_counts(table, [[line.views.get(view) for line in chosen] for view in views])
    return table


def _mark(resolution: int, chosen: Sequence[series.Line]) -> str:
    if all(line.seen.one == resolution for line in chosen):
        return "\ntrained"
    return "\nseen" if all(line.seen.holds(resolution) for line in chosen) else ""


def _numbers_table(ascii_only: bool) -> Table:
    from rich.text import Text

    table = _empty_table(ascii_only)
    table.add_column(Text("run"), no_wrap=True, overflow=_overflow(ascii_only), max_width=_NAME_WIDTH)
    return table


def _add_number(table: Table, heading: str) -> None:
    from rich.text import Text

    table.add_column(Text(heading, justify="right"), justify="right", no_wrap=True)


def _name(line: series.Line, ascii_only: bool) -> Text:
    from rich.text import Text

    name = Text(_plain(line.run, ascii_only))
    # Beside the two lines of an interval, and the value of a tuned knob.
    for below in (line.detail, "", *(["its value"] if line.tuned else [])):
        name.append(f"\n  {below}", style="dim")
    return name


def _cell(line: series.Line, point: series.Point | None, best: bool) -> Text:
    from rich.text import Text

    if point is None:
        return Text("- ")
    # The blank keeps the decimal points under each other beside a marked number.
    cell = Text(f"{100 * point.value:.1f}", style="bold" if best else "").append("*" if best else " ")
    for limit in point.interval():
        cell.append(f"\n{100 * limit:.1f} ", style="not bold dim")
    if line.tuned and point.knob is not None:
        cell.append(f"\n{point.knob:g} ", style="not bold dim")
    return cell


def _add_counts(table: Table, columns: Sequence[Sequence[series.Point | None]]) -> None:
    from rich.text import Text

    texts = []
    for points in columns:
        counts = sorted({point.images for point in points if point is not None})
        texts.append((f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}..{counts[-1]}") + " ")
    table.add_row(Text("test images", style="dim"), *(Text(text, style="dim") for text in texts))


def print_accuracy(
    rows: Sequence[ResultRow], console: Console | None = None, *, seen: Mapping[str, SeenSizes] | None = None
) -> None:
    """Print the accuracy table, one for held-out fonts and one for other views than squares if they were measured.

    Where the columns do not fit the width of the console, the table continues below itself: no number is ever cut.

    Raises:
        InputError: there are no rows of `top1`, or of several data sets.
    """
    console = console or _console()
    series.check_rows(rows)
    main = series.main_split(rows)
    titles = {main: f"Top-1 accuracy in %, split {main}"}
    if main != series.HELD_OUT and series.lines(rows, split=series.HELD_OUT):
        titles[series.HELD_OUT] = "Top-1 accuracy in % in fonts not seen in training"
    views = view_table(rows, ascii_only=_ascii_only(console))
    for split, title in titles.items():
        if views is not None and not any(line.points for line in series.lines(rows, split=split)):
            continue
        for number, table in enumerate(_fitting(rows, split, console, seen)):
            _print_heading(console, title + (", continued" if number else ""))
            console.print(table)
    if views is not None:
        _print_heading(console, f"Top-1 accuracy in %, split {main}, by view")
        console.print(views)
    console.print("Below each number: where it lies with 95 %.  *: highest of its column.", highlight=False)


def _fitting(
    rows: Sequence[ResultRow], split: str, console: Console, seen: Mapping[str, SeenSizes] | None
) -> list[Table]:
    """Accuracy tables with as many columns each as the console is wide, at least one."""
    ascii_only = _ascii_only(console)
    unbounded = console.options.update(max_width=10_000)
    left = series.resolutions(series.lines(rows, split=split))
    tables = []
    while left or not tables:
        count = max(len(left), 1)
        table = accuracy_table(rows, split=split, resolutions=left, seen=seen, ascii_only=ascii_only)
        while count > 1 and console.measure(table, options=unbounded).maximum > console.width:
            count -= 1
            fewer = left[:count]
            table = accuracy_table(rows, split=split, resolutions=fewer, seen=seen, ascii_only=ascii_only)
        tables.append(table)
        left = left[count:]
    return tables


def simple_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    ascii_only: bool = False,
) -> Table:
    """A table of anything: `columns` are the headings, a row has a cell for each; None prints as a dash.

    The first column, taken to be a name, is never wrapped; columns of numbers alone are set flush right.

    Raises:
        InputError: a row has not as many cells as there are columns.
    """
    from rich.text import Text

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
        table.add_column(Text(heading), justify=justify, no_wrap=keep, overflow=overflow, min_width=least)
    for row in rows:
        table.add_row(*(Text(_plain(_shown(cell), ascii_only)) for cell in row))
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

    from rich.text import Text

    ascii_only = _ascii_only(console)
    width = max(min(console.width, _PARAGRAPH) - 1, 20)
    for row in rows:
        console.print(Text(_plain(_shown(row[0]), ascii_only), style="bold"), soft_wrap=True)
        for heading, cell in zip(columns[1:], row[1:], strict=True):
            if cell is not None:
                said = _plain(f"{heading}: {_shown(cell)}" if heading else _shown(cell), ascii_only)
                lines = textwrap.wrap(
                    said, width, initial_indent="  ", subsequent_indent="    ",
                    break_long_words=False, break_on_hyphens=False,
                )  # fmt: skip
                for line in lines:
                    console.print(Text(line), soft_wrap=True)


def _print_heading(console: Console, text: str) -> None:
    # Not rich's own table title, which is wrapped at the width of the table.
    from rich.text import Text

    console.print(Text(_plain(text, _ascii_only(console)), style="bold"))


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _plain(text: str, ascii_only: bool) -> str:
    shown = series.printable(text)
    return shown.encode("ascii", "replace").decode("ascii") if ascii_only else shown


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
