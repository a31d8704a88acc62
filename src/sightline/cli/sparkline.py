"""A curve in a few characters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

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
