"""Curves and bars in a few characters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_BAR = 40
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*#@"


def sparkline(values: Sequence[float], width: int = 12, *, ascii_only: bool = False) -> str:
    """The means of `width` equal parts of finite `values`, from the lowest to the highest character; "" of none."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [number * len(values) // count for number in range(count + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    marks = _ASCII if ascii_only else _BLOCKS
    scale = (len(marks) - 1) / (high - low) if high > low else 0.0
    return "".join(marks[round((mean - low) * scale)] for mean in means)


def print_bars(lines: Sequence[tuple[str, int]]) -> None:
    """Print a name, a number and a bar a line; the longest is that of the largest number."""
    most = max((count for _, count in lines), default=0) or 1
    wide = max((len(name) for name, _ in lines), default=0)
    for name, count in lines:
        print(f"  {name:<{wide}} {count:>8,} {'#' * round(_BAR * count / most)}".rstrip())
