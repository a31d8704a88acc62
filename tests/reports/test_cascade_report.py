"""Figures, tables and the page of a cascade, on made-up rows."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from rich.console import Console

from sightline.errors import InputError
from sightline.reports import cascade_page, tables
from sightline.reports.cascade_plot import accuracy_by_cost, calibration_by_tokens
from sightline.reports.style import standalone
from sightline.results.cascade import CascadeRow
from sightline.results.rows import dump_rows
from tests.reports.test_html import Page

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<b>$x_1$</b>"


def row(kind: Any, tokens: float, top1: float, **changes: Any) -> CascadeRow:
    """A made-up row: the numbers were measured nowhere."""
    fields: dict[str, Any] = {
        "run": "looker", "encoding": "lookhere_90", "task": "glyphs", "data": "scenes", "split": "test", "images": 400,
        "aspect": "native", "kind": kind, "budget": round(tokens), "tokens": tokens, "milliseconds": tokens / 50,
        "reading_milliseconds": 0.5, "top1": top1, "low": top1 - 0.02, "high": top1 + 0.02, "ece": 0.02 + tokens / 5000,
        "held_out_split": "minival", "held_out": 300, "patch_size": 4, "train_resolution": 32, "scores": "sigmoid",
        "precision": "float32", "threads": 1, "seed": 0, "bootstrap_seed": 0, "commit": "0000000",
        "hardware": "synthetic",
    }  # fmt: skip
    return CascadeRow(**{**fields, **changes})


def point(alpha: float, top1: float, ahead: float | None = 0.03, **changes: Any) -> CascadeRow:
    fields: dict[str, Any] = {
        "budget": 16, "second_budget": 144, "alpha": alpha, "threshold": 0.5, "fraction": alpha + 0.01, "ahead": ahead,
        "ahead_low": None if ahead is None else ahead - 0.01, "ahead_high": None if ahead is None else ahead + 0.01,
    }  # fmt: skip
    return row("cascade", 16 + 144 * alpha, top1, **{**fields, **changes})


SINGLE = [row("single", n, top1) for n, top1 in ((16, 0.4), (36, 0.6), (64, 0.7), (144, 0.8), (256, 0.82))]
ROWS = [*SINGLE, *(point(alpha, 0.4 + alpha / 2) for alpha in (0.1, 0.2, 0.4, 0.6)), point(1.0, 0.8, None)]
CHOSEN = point(0.123, 0.47, chosen=True)


def names(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_figures_are_whole_and_the_same_each_time():
    for draw in (accuracy_by_cost, calibration_by_tokens):
        svg = standalone(draw([*ROWS, CHOSEN]))
        assert svg.count("http") == 1
        assert names(svg)
        assert svg == standalone(draw([*ROWS, CHOSEN]))
        assert re.search(r"<svg [^>]*style=\"background: #", svg)


def test_both_curves_by_tokens_and_by_time():
    written = names(accuracy_by_cost([*ROWS, CHOSEN]))
    assert "patches an image, mean" in written
    assert "ms an image, mean (forward pass)" in written
    # Above each panel; 16 also stands for a tick.
    for name in ("36", "144"):
        assert written.count(name) == 2, name
    assert "cascade 16, then 144" in written
    assert "chosen: 12.3 % again" in written
    assert not any("chosen" in name or "cascade" in name for name in names(accuracy_by_cost(SINGLE)))


def test_no_single_budget_is_refused():
    for draw in (accuracy_by_cost, calibration_by_tokens):
        with pytest.raises(InputError, match="single"):
            draw([CHOSEN])


@pytest.mark.slow
def test_the_page_is_one_file_with_every_number():
    text = cascade_page.render([*ROWS, CHOSEN], "sightline cascade runs/a scenes")
    page = Page(text)
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("figure") == 2
    for words in ("40.0 [38.0,42.0]", "+3.0 [+2.0,+4.0]", "0.123 *", "0.110", "sightline cascade runs/a scenes"):
        assert words in page.text
    # The look of the other report.
    assert "--ink: #1d2129" in text
    assert text == cascade_page.render([*ROWS, CHOSEN], "sightline cascade runs/a scenes")


def test_the_page_without_a_cascade():
    page = Page(cascade_page.render(SINGLE, "sightline cascade runs/a"))
    assert "Single budgets" in page.text
    assert "alpha" not in page.text


def test_names_are_escaped():
    hostile = [row("single", n, 0.5, run=HOSTILE, data=HOSTILE) for n in (16, 36)]
    text = cascade_page.render(hostile, HOSTILE)
    assert HOSTILE not in text
    assert "&lt;b&gt;" in text


def test_found_13_a_cascade_is_ahead_by_an_interval():
    """It was "at its best ... by -0.4 [-2.0,+0.7] points"."""
    level = [point(0.1, 0.5, -0.004), point(0.2, 0.5, 0.005)]
    text = Page(cascade_page.render([*SINGLE, *level], "")).text
    for words in ("-0.4 [-1.4,+0.6]", "+0.5 [-0.5,+1.5]"):
        assert words in text
    assert "best" not in text.replace("best class", "")


def test_found_40_an_interval_stands_below_its_number_so_that_the_tables_fit_a_phone():
    page = cascade_page.render([*ROWS, CHOSEN], "")
    assert '40.0 <span class="interval">[38.0,42.0]</span>' in page


def test_tables_fit_a_terminal(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(tables, "_console", lambda: Console(file=out, width=80))
    wide = [point(0.2, 0.5, -0.15, ahead_low=-0.175, ahead_high=-0.125, milliseconds=12.34), point(1, 0.8, None)]
    cascade_page.print_rows([*SINGLE, *wide, CHOSEN])
    said = out.getvalue()
    assert "-15.0 [-17.5,-12.5]" in said
    assert "0.123 *" in said
    assert max(map(len, said.splitlines())) <= 80


def test_rows_are_json_lines():
    lines = [json.loads(line) for line in dump_rows([*SINGLE, CHOSEN]).splitlines()]
    assert [CascadeRow(**line) for line in lines] == [*SINGLE, CHOSEN]


@pytest.mark.parametrize(("held_out", "said"), [("minival", "on minival;"), ("test", "on the other half of test;")])
def test_an_alpha_was_found_on_other_images_than_those_that_are_measured(held_out, said):
    page = Page(cascade_page.render([*SINGLE, point(0.123, 0.47, chosen=True, held_out_split=held_out)], ""))
    assert f"the largest within it {said} here it took" in page.text
