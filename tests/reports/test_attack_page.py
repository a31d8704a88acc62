"""What a page, a table and a figure say of accuracy under attack, and of speed."""

from __future__ import annotations

import re

import pytest

from sightline.reports import figures, style
from sightline.reports.content import Report
from sightline.reports.html import render
from sightline.reports.lines import lines_figure
from sightline.reports.series import Study
from tests.reports.synthetic import accuracy_rows, row
from tests.reports.test_html import Page
from tests.reports.test_plots import texts
from tests.reports.test_tables import printed

VALUES = {"a": (0.75, 0.5), "b": (0.5, 0.25)}
SIZES = (32, 64)
LOSSES = ("ce", "bce")


def attacked(losses=LOSSES):
    """Both runs at both sizes; 10 or 20 points less by epsilon, and by view."""
    rows = accuracy_rows(VALUES, SIZES)
    for run, values in VALUES.items():
        for size, value in zip(SIZES, values, strict=True):
            for loss in losses:
                for epsilon in (1, 3):
                    part = {"loss": loss, "epsilon": f"{epsilon}/255"}
                    rows.append(row(run, value - epsilon / 20, size, metric="fgsm_top1", slices=part))
                    rows.append(row(run, value - epsilon / 25, size, metric="fgsm_top5", slices=part))
    part = {"loss": "ce", "epsilon": "1/255"}
    rows.append(row("a", 0.125, None, metric="fgsm_top1", slices=part, view="native", grid=None, patches=9.5))
    return rows


def fast():
    rows = accuracy_rows(VALUES, SIZES)
    for run in VALUES:
        said = {"unit": "images/s", "count": 64, "counted": "images a pass", "interval": (80.5, 99.5)}
        rows.append(row(run, 90.25, 32, metric="throughput", **said))
        said = {"unit": "ms", "count": 15, "counted": "passes", "better": "lower"}
        rows.append(row(run, 12.5, 32, metric="latency", interval=(11.5, 14.5), **said))
        rows += [
            row(run, value, 32, metric="latency", slices={"quartile": q}, **said) for q, value in ((1, 10), (3, 16))
        ]
        rows.append(row(run, 4.5e9, 32, metric="flops", unit="FLOP", better="lower"))
        rows.append(row(run, 176.5, 32, metric="peak_memory", unit="MiB", better="lower"))
    return rows


def test_the_page_has_the_figure_and_every_number_of_it():
    text = render(Report("t", "c", [], attacked()))
    page = Page(text)
    assert "attacked" in page.ids
    assert "#attacked" in page.links
    for words in (
        "Top-1 accuracy under FGSM in %, loss ce, epsilon 1/255, split test",
        "Top-5 accuracy under FGSM in %, loss bce, epsilon 3/255, split test",
        "70.0", "60.0", "45.0", "12.5", "9.5 patches",
    ):  # fmt: skip
        assert words in page.text, words
    assert 'id="parts"' not in text
    without = render(Report("t", "c", [], accuracy_rows(VALUES, SIZES)))
    assert "attacked" not in without


def test_of_views_alone_there_are_numbers_and_no_figure():
    rows = [one for one in attacked() if not one.slices or one.view == "native"]
    text = render(Report("t", "c", [], rows))
    assert "12.5" in Page(text).text
    assert "<details open>" in text
    assert figures.attack_panels(Study.of(rows)) == []


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("losses", [("ce",), LOSSES])
def test_a_panel_for_each_loss_and_epsilon_with_a_mark_for_each_size(losses, narrow):
    svg = lines_figure(figures.attack_panels(Study.of(attacked(losses))), columns=2, narrow=narrow)
    said = texts(svg)
    titles = {f"FGSM {epsilon}/255, loss {loss}" for loss in losses for epsilon in (1, 3)}
    assert titles | {"a", "b", "32", "64", "test resolution (px)", "top-1 accuracy (%)"} <= set(said)
    marks = tuple(len(re.findall(f'<use [^>]*style="fill: {colour}', svg, re.I)) for colour in style.PALETTE[:2])
    # Of each mark both ends of its bar too; and one in the legend.
    assert marks == (3 * 2 * len(titles) + 1,) * 2


def test_the_terminal_has_top_1_by_size_a_table_for_each_loss_and_epsilon():
    text = printed(attacked())
    for loss in LOSSES:
        for epsilon in (1, 3):
            assert f"Top-1 accuracy under FGSM in %, loss {loss}, epsilon {epsilon}/255, split test" in text
    assert "op-5" not in text
    assert "tested at" not in text
    part = text.split("Top-1 accuracy under FGSM in %, loss ce, epsilon 1/255, split test")[1].split("Top-1")[0]
    for word in ("32 px", "64 px", "native", "70.0*", "45.0*", "20.0 ", "12.5 ", "images"):
        assert word in part, word


def test_speed_is_shown_in_its_units():
    text = printed(fast())
    for words in (
        "Throughput in images/s, split test", "90.25", "80.5", "99.5", "images a pass", "Latency in ms, split test",
        "12.5", "14.5", "passes", "Peak memory in MiB, split test", "176.5", "4.5e+09",
        "Operations of an image in FLOP",
    ):  # fmt: skip
        assert words in text, words
    assert "quartile" not in text
    page = Page(render(Report("t", "c", [], fast())))
    for words in ("on the machine that measured them", "Latency in ms by quartile", "16", "Operations of an image"):
        assert words in page.text, words
