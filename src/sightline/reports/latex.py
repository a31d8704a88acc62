"""Tables of plain cells as CSV and as LaTeX."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from io import StringIO

from sightline.reports.grids import Heading, TableCell, TextTable
from sightline.reports.words import DASH

_ESCAPED = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\u00a0": "~", "\N{MULTIPLICATION SIGN}": r"$\times$",
    DASH: "--", "<": "$<$", ">": "$>$",
}  # fmt: skip
_SPECIAL = re.compile("|".join(map(re.escape, _ESCAPED)))


def csv_of(tables: Mapping[str, TextTable]) -> str:
    """A line a cell: table, its caption, line, column, what stands below that, value, low, high."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", "caption", "line", "below_line", "column", "below", "value", "low", "high"))
    for name, table in tables.items():
        for line in table.lines:
            for heading, cell in zip(table.headings, line.cells, strict=True):
                limits = list(cell.limits) or ["", ""]
                row = (name, table.caption, line.name, line.below, heading.title, heading.below, cell.value, *limits)
                writer.writerow([one.replace("\u00a0", " ") for one in row])
    return text.getvalue()


def latex_of(tables: Mapping[str, TextTable]) -> str:
    """One `table` a table, of plain LaTeX: it needs no package. Intervals stand small behind their numbers."""
    return "\n".join(_table(name, table) for name, table in tables.items())


def _table(name: str, table: TextTable) -> str:
    lines = [
        r"\begin{table}", rf"\caption{{{escaped(table.caption)}}}", rf"\label{{tab:{name}}}",
        rf"\begin{{tabular}}{{l{'r' * len(table.headings)}}}", r"\hline",
        _row([escaped(table.corner), *(_heading(one) for one in table.headings)]), r"\hline",
    ]  # fmt: skip
    for line in table.lines:
        label = escaped(line.name) + (rf" {{\scriptsize {escaped(line.below)}}}" if line.below else "")
        lines.append(_row([label, *(_cell(cell) for cell in line.cells)]))
    return "\n".join([*lines, r"\hline", r"\end{tabular}", r"\end{table}", ""])


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _heading(one: Heading) -> str:
    return escaped(one.title) + (rf" {{\scriptsize {escaped(one.below)}}}" if one.below else "")


def _cell(cell: TableCell) -> str:
    shown = rf"\textbf{{{escaped(cell.value)}}}" if cell.best else escaped(cell.value)
    return shown + (rf" {{\scriptsize {escaped(cell.interval)}}}" if cell.interval else "")


def escaped(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return _SPECIAL.sub(lambda found: _ESCAPED[found[0]], text)
