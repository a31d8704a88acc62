"""Rows of a metric that reports have never heard of make a page and a table, of which no sentence is false."""

from __future__ import annotations

from typing import Any

import pytest

from sightline.reports import style
from sightline.reports.content import Report
from sightline.reports.html import render
from sightline.results.rows import ResultRow
from tests.reports.synthetic import row, run_summary
from tests.reports.test_html import Page
from tests.reports.test_plots import texts
from tests.reports.test_tables import printed

SIZES = (32, 64, 128)
NEAR, FAR = (2.5, 3.25, 4.0), (2.75, 6.5, 12.125)
# What is said of shares that were named rightly, and of nothing else.
UNTRUE = (
    "ccuracy", "Top-1", "top-1", "uessing", "named", "Wilson", "the share", "highest", "0 to 100", "points",
)  # fmt: skip


def error(run: str, value: float, size: int | None = 32, **changes: Any) -> ResultRow:
    given = {"metric": "corner_error", "unit": "px", "count": 4096, "counted": "corners", "stderr": 0.25}
    return row(run, value, size, **{**given, "better": "lower", "task": "corners", "data": "houses", **changes})


def rows(**changes: Any) -> list[ResultRow]:
    made = [error("near", value, size, **changes) for size, value in zip(SIZES, NEAR, strict=True)]
    return made + [error("far", value, size, **changes) for size, value in zip(SIZES, FAR, strict=True)]


def said(found: list[ResultRow], **changes: Any) -> str:
    runs = [run_summary(name, about="", config={}, train_images=size) for name, size in (("near", 9), ("far", 8))]
    return Page(render(Report("Corners", "sightline report a b", runs, found, **changes))).text


@pytest.fixture(autouse=True)
def quick_figures(request, monkeypatch):
    if "figures" not in request.fixturenames:
        monkeypatch.setattr(style, "draw", lambda width, height, paint: f'<svg viewBox="0 0 {72 * width} 9"></svg>')


@pytest.fixture
def figures():
    """Draw what is drawn."""


def test_a_page_of_errors_in_pixels():
    parts = [error("near", 7.5, 128, slices={"part": "roof"}), error("near", 1.5, 128, slices={"part": "wall"})]
    shown = [error("near", 9.75, None, view="native", grid=None, patches=99.5)]
    fonts = [error("near", 5.125, 32, split="heldout_fonts")]
    text = said([*rows(), *parts, *shown, *fonts, error("near", 0.875, metric="depth_error", unit="m")])
    for word in UNTRUE:
        assert word not in text, word
    # The lower is the better one, beyond the size of training; by 95 % of the standard error.
    for word in (
        "Differences beyond training: corner error, px", "far less near",
        "Corner error by resolution", "Corner error in px, split test", "3.25 [2.76, 3.74]", "corners 4,096",
        "Corner error in px by part, tested at 128 px", "roof", "1.5 [1.01, 1.99]", "Bold: the lowest number",
        "Bars: where the number lies", "Depth error in m, split test", "0.875 [0.385, 1.365]", "9.75 [9.26, 10.24]",
        "lies above that of the same size",
    ):  # fmt: skip
        assert word in text, word


@pytest.mark.parametrize("changes", [{"better": ""}, {"stderr": None}])
def test_no_difference_that_the_rows_do_not_give(changes):
    text = said(rows(**changes))
    for word in (*UNTRUE, " less ", "lowest" if not changes.get("better", "lower") else "Bars"):
        assert word not in text, word


def test_the_terminal_has_a_table_a_metric_and_of_its_parts():
    parts = [error("far", 8.5, 64, slices={"part": "roof"})]
    text = printed([*rows(), *parts, error("far", 0.875, metric="depth_error", unit="m", better="")])
    for word in ("Corner error in px, split test", "2.5*", "3.74", "Depth error in m, split test", "0.875 ", "corners"):
        assert word in text, word
    assert "Corner error in px by part, tested at 64 px" in text
    assert "*: lowest at its size" in text
    assert "accuracy" not in text


def test_the_figure_has_the_axis_of_its_unit(figures):
    page = render(Report("Corners", "c", [], rows()))
    assert "corner error (px)" in page
    assert 'id="axis-fitted"' not in page
    wide = page.split('<div class="wide">')[1]
    written = texts(wide.partition("</svg>")[0].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ') + "</svg>")
    assert {"near", "far", "32", "128", "corner error (px)"} <= set(written)
    assert "80" not in written


def test_a_part_may_be_measured_at_some_sizes_alone():
    """As where few images are shown at the largest: no size is left without a table because of it."""
    parts = [row(resolution=side, slices={"group": group}) for side, group in ((16, "b, d"), (32, "p, q"))]
    rows = [row(resolution=side) for side in (16, 32)] + parts
    page = Page(render(Report("parts", "sightline report", [run_summary()], rows))).text
    assert "b, d" in page
    assert "p, q" in page


def test_what_is_measured_of_each_class_alone_is_on_the_page_and_not_in_the_terminal():
    parts = [row(value=0.25, metric="iou", unit="", slices={"class": name}) for name in ("disc", "square")]
    rows = [row(metric="miou", unit=""), *parts, row(value=0.125, metric="miou", slices={"class": "disc"}, unit="")]
    text = Page(render(Report("classes", "sightline report", [run_summary()], rows))).text
    assert "IoU by class, tested at 32 px" in text
    assert "Mean IoU by class" in text
    assert "square" in text
    shown = printed(rows)
    assert "Mean IoU" in shown
    assert "class" not in shown
