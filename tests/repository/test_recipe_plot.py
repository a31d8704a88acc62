"""Recipes over seeds: the mean, its interval, and what the figure shows."""

from __future__ import annotations

import math
import re
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from sightline.errors import InputError

_SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benchmarks" / "recipe_plot.py"))
RecipeCurve, interval, recipe_plot = (_SCRIPT[name] for name in ("RecipeCurve", "interval", "recipe_plot"))
VIT = RecipeCurve({16: [0.4, 0.5, 0.3], 32: [0.8, 0.9, 0.7]}, [24_000] * 3)
NAVIT = RecipeCurve({16: [0.6, 0.7, 0.5], 32: [0.8, 0.9, 0.7]}, [51_000, 51_400, 51_200])


def test_the_mean_of_a_seed_is_over_its_resolutions():
    assert VIT.means() == pytest.approx([0.6, 0.7, 0.5])


def test_an_interval_in_numbers():
    """Student's: 4.303 standard errors of the mean for three values, 12.706 for two; nobody knows for one."""
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 4.303 / math.sqrt(3)))
    assert interval([1.0, 3.0]) == pytest.approx((2.0, 12.706))
    assert interval([1.0] * 20) == (1.0, 0.0)
    wide, narrow = (interval([0.0, 1.0] * count)[1] for count in (5, 6))
    assert narrow < wide
    mean, half = interval([0.5])
    assert mean == 0.5
    assert math.isnan(half)
    with pytest.raises(InputError, match="no value"):
        interval([])


def test_the_figure_names_recipes_seeds_and_sizes():
    svg = recipe_plot({"vit": VIT, "navit & co": NAVIT}, train_resolution=32)
    ElementTree.fromstring(svg)
    text = re.sub(r"<[^>]+>", " ", svg)
    for words in (
        "vit: 24,000 images, 3 seeds",
        "navit &amp; co: 51,200 images, 3 seeds",
        "16",
        "32",
        "top-1 accuracy",
    ):
        assert words in text
    assert svg == recipe_plot({"vit": VIT, "navit & co": NAVIT}, train_resolution=32)
    assert svg != recipe_plot({"vit": VIT, "navit & co": VIT}, train_resolution=32)


def test_nothing_to_draw():
    for curves in ({}, {"vit": RecipeCurve({}, [])}):
        with pytest.raises(InputError, match="no curve"):
            recipe_plot(curves, train_resolution=32)
