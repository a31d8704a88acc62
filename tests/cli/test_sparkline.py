"""A curve in a few characters."""

from __future__ import annotations

import pytest

from sightline.cli.demo_watch import sparkline


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ""), ([5.0], "▁"), ([0, 7], "▁█"), (range(8), "▁▂▃▄▅▆▇█"), ([3, 3, 3], "▁▁▁"), (range(800), "▁▂▃▄▅▆▇█")],
)
def test_from_the_lowest_to_the_highest(values, expected):
    assert sparkline(list(values), 8) == expected


def test_in_ascii():
    assert sparkline([1, 2, 3], 3, ascii_only=True).isascii()
