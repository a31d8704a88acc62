"""The time that is left, as people are told it."""

from __future__ import annotations

import pytest

from sightline.cli.progress import Bars, TimeLeft


def after(points, total=1000):
    """What is said at the last of some points (seconds, done)."""
    left = TimeLeft()
    for now, done in points:
        left.look(now, done)
    return left.words(*points[-1], total)


@pytest.mark.parametrize(
    ("points", "says"),
    [
        # The first step takes a minute of starting up: that is no speed, and neither are two quick ones after it.
        ([(60, 10)], "measuring"),
        ([(60, 10), (61, 20)], "measuring"),
        ([(60, 10), (61, 20), (62.5, 35)], "1:36"),
        # A sitting that goes on with what another one did.
        ([(0, 900), (1, 901), (4, 904)], "1:36"),
        # What happened more than a minute ago does not count.
        ([(0, 1), (100, 2), (200, 102), (250, 152), (260, 162)], "13:58"),
        ([(0, 0), (5, 0)], "measuring"),
        ([(0, 0), (10, 1)], "2:46:30"),
        ([(0, 0), (10, 1000)], "0:00"),
    ],
)
def test_the_time_left_is_that_of_the_last_minute_or_is_being_measured(points, says):
    assert after(points) == says


def test_no_dashes_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Bars() as bars:
        bars.move("training", 5, 100, "loss 2.0")
        bars.move("training", 6, 100, "loss 1.9")
    said = capsys.readouterr().err
    assert "left measuring" in said
    assert "-:--" not in said
