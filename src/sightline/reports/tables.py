"""Tables for the terminal: readable at 80 columns, without colour, and where only ASCII can be printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from sightline.errors import InputError
from sightline.reports import series
from sightline.results import SQUARE, ResultRow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# A longer run name is cut in the first column, to leave room for numbers.
_NAME_WIDTH = 30


def accuracy_table(
    rows: Sequence[ResultRow],
    *,
    metric: str = "top1",
    split: str | None = None,
    resolutions: Sequence[int] | None = None,
    ascii_only: bool = False,
) -> Table:
    """Accuracy in percent, a line a run and a column a resolution, the standard error under each number.

    The training resolution is marked "trained"; the best of a column is bold and carries an asterisk, so that it is
    also seen where there is no bold. A run with a default and a tuned knob has two lines. `split` is the test split
    unless given; `resolutions` chooses columns (all).

    Raises:
        InputError: no row has this metric on this split.
    """
    from rich.text import Text

    series.check_rows(rows)
    split = split or series.main_split(rows)
    chosen = series.lines(rows, metric, split=split)
    if not chosen:
        raise InputError(f"no row has metric {metric} on split {split}")
    shown = list(resolutions) if resolutions is not None else series.resolutions(chosen)
    trained = series.train_resolutions(chosen)
    plus_minus = "+-" if ascii_only else "±"
    table = _empty_table(ascii_only)
    table.add_column(Text("run"), no_wrap=True, overflow=_overflow(ascii_only), max_width=_NAME_WIDTH)
    for resolution in shown:
        header = f"{resolution} px" + ("\ntrained" if resolution in trained else "")
        table.add_column(Text(header, justify="right"), justify="right", no_wrap=True)
    for index, line in enumerate(chosen):
        cells = [Text(_plain(line.run, ascii_only)).append(f"\n  {line.detail}", style="dim")]
        if line.tuned:
            cells[0].append("\n  its value", style="dim")
        for resolution in shown:
            cells.append(_cell(line, resolution, index in series.best_lines(chosen, resolution), plus_minus))
        table.add_row(*cells)
    counts = [_image_count(chosen, resolution) for resolution in shown]
    table.add_row(Text("test images", style="dim"), *(Text(count, style="dim") for count in counts))
    return table


def _cell(line: series.Line, resolution: int, best: bool, plus_minus: str) -> Text:
    from rich.text import Text

    point = line.points.get(resolution)
    if point is None:
        return Text("- ")
    # The blank keeps the decimal points under each other beside a marked number.
    cell = Text(f"{100 * point.value:.1f}", style="bold" if best else "").append("*" if best else " ")
    cell.append(f"\n{plus_minus}{100 * point.stderr:.1f} ", style="not bold dim")
    if line.tuned and point.knob is not None:
        cell.append(f"\n{point.knob:g} ", style="not bold dim")
    return cell


def _image_count(chosen: Sequence[series.Line], resolution: int) -> str:
    counts = sorted({line.points[resolution].images for line in chosen if resolution in line.points})
    return (str(counts[0]) if len(counts) == 1 else f"{counts[0]}..{counts[-1]}") + " "


def print_accuracy(rows: Sequence[ResultRow], console: Console | None = None) -> None:
    """Print the accuracy table, and a second one for held-out fonts if they were measured.

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
    for split, title in titles.items():
        if not series.lines(rows, split=split):
            continue
        for number, table in enumerate(_fitting(rows, split, console)):
            _print_heading(console, title + (", continued" if number else ""))
            console.print(table)
    sign = "+-" if _ascii_only(console) else "±"
    if series.lines(rows, split=main):
        console.print(f"{sign}: one standard error of the number above it.  *: best of its column.", highlight=False)
    _print_views([row for row in rows if row.view != SQUARE and row.metric == "top1"], console, sign)


def _print_views(rows: Sequence[ResultRow], console: Console, sign: str) -> None:
    """Accuracy of images at their own aspect, a line a run and a view."""
    if not rows:
        return
    shown = []
    for row in sorted(rows, key=lambda row: (row.split, row.run, row.seed, row.patches, row.tuned)):
        knob = f"{row.knob:g} (searched)" if row.tuned and row.knob is not None else row.knob
        percent = f"{100 * row.value:.1f} {sign}{100 * row.stderr:.1f}"
        shown.append((row.run, row.view, row.split, percent, f"{row.patches:.1f}", row.images, knob))
    columns = ("run", "shown", "split", "top-1, %", "patches", "images", "knob")
    print_table(columns, shown, title="Top-1 accuracy in %, images at their own aspect", console=console)


def _fitting(rows: Sequence[ResultRow], split: str, console: Console) -> list[Table]:
    """Accuracy tables with as many columns each as the console is wide, at least one."""
    ascii_only = _ascii_only(console)
    unbounded = console.options.update(max_width=10_000)
    left = series.resolutions(series.lines(rows, split=split))
    tables = []
    while left or not tables:
        count = max(len(left), 1)
        table = accuracy_table(rows, split=split, resolutions=left, ascii_only=ascii_only)
        while count > 1 and console.measure(table, options=unbounded).maximum > console.width:
            count -= 1
            table = accuracy_table(rows, split=split, resolutions=left[:count], ascii_only=ascii_only)
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
        table.add_column(Text(heading), justify=justify, no_wrap=keep, overflow=overflow)
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
    """Print `simple_table` in a way that the console can show."""
    console = console or _console()
    if title:
        _print_heading(console, title)
    console.print(simple_table(columns, rows, ascii_only=_ascii_only(console)))


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
