"""Figures, tables and the page of a cascade, on made-up rows."""

from __future__ import annotations

from typing import Any

from sightline.reports import cascade_page
from sightline.reports.cascade_page import accuracy_by_cost, calibration_by_tokens
from sightline.reports.words import DASH
from sightline.results.cascade import CascadeRow
from tests.pages import Page


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


COMMAND = "sightline cascade runs/a scenes"


def test_both_curves_by_tokens_and_by_time():
    tokens, time = accuracy_by_cost([*ROWS, CHOSEN])
    single, cascade, chosen = tokens.lines
    assert list(zip(single.x, single.y, strict=True)) == [(row.tokens, 100 * row.top1) for row in SINGLE]
    assert [line.band for line in tokens.lines] == [False, True, True]
    assert chosen.x == [CHOSEN.tokens]
    assert time.lines[1].x == [one / 50 for one in cascade.x]
    assert tokens.above == {row.tokens: str(row.budget) for row in SINGLE}
    assert len(accuracy_by_cost(SINGLE)[0].lines) == 1
    assert [list(line.y) for line in calibration_by_tokens(ROWS)[0].lines] == [[row.ece for row in SINGLE]]


def test_the_page_is_one_file_with_every_number():
    text = cascade_page.render([*ROWS, CHOSEN], COMMAND)
    page = Page(text)
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert page.figures == 2
    single, cascade = page.tables
    assert page.table(single)["16", "top-1"] == "40.0 [38.0, 42.0]"
    assert page.table(cascade)["0.123 *", "ahead"] == "+3.0 [+2.0, +4.0]"
    assert page.table(cascade)["1", "ahead"] == DASH
    assert page.table(cascade)["0.1", "again"] == "0.110"
    assert COMMAND in page.text
    # The look of the other report.
    assert "--ink: #1d2129" in text
    assert text == cascade_page.render([*ROWS, CHOSEN], COMMAND)
    assert len(Page(cascade_page.render(SINGLE, COMMAND)).tables) == 1


def test_a_cascade_is_ahead_by_an_interval():
    """It was "at its best ... by -0.4 [-2.0,+0.7] points"."""
    level = [point(0.1, 0.5, -0.004), point(0.2, 0.5, 0.005)]
    page = Page(cascade_page.render([*SINGLE, *level], ""))
    cells = page.table(list(page.tables)[1])
    assert [cells[alpha, "ahead"] for alpha in ("0.1", "0.2")] == ["-0.4 [-1.4, +0.6]", "+0.5 [-0.5, +1.5]"]
    assert "best" not in page.text.replace("best class", "")


def test_an_interval_stands_below_its_number_so_that_the_tables_fit_a_phone():
    page = cascade_page.render([*ROWS, CHOSEN], "")
    assert '40.0 <span class="interval">[38.0,\xa042.0]</span>' in page
