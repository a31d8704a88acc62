"""What a page, a table and a figure say of how sure a model was."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sightline.errors import InputError
from sightline.reports import figures, style
from sightline.reports.content import Report
from sightline.reports.html import render
from sightline.reports.series import Study
from tests.reports.synthetic import accuracy_rows, row
from tests.reports.test_html import Page
from tests.reports.test_plots import texts
from tests.reports.test_tables import printed

VALUES = {"a": (0.75, 0.5), "b": (0.5, 0.25)}
SIZES = (32, 64)


def calibrated():
    """Both runs at both sizes; of run b one bin less."""
    rows = accuracy_rows(VALUES, SIZES)
    for run in VALUES:
        for size in SIZES:
            rows.append(row(run, 0.125, size, metric="ece", unit="", better="lower"))
            rows.append(row(run, 0.25, size, metric="ece_30", unit="", better="lower"))
            rows.append(row(run, 0.9, size, metric="top1_answered", slices={"coverage": 0.5}, count=200))
            for number in (5, 15) if run == "a" else (15,):
                part = {"slices": {"confidence_bin": number}, "count": 40}
                rows.append(row(run, 0.3 + number / 50, size, metric="top1_in_bin", **part))
                rows.append(row(run, (number - 0.5) / 15, size, metric="confidence", unit="", better="", **part))
    return rows


def test_the_page_has_the_figure_and_every_number_of_it():
    text = render(Report("t", "c", [], calibrated()))
    page = Page(text)
    assert "sure" in page.ids
    assert "#sure" in page.links
    for words in ("27 to 33 %", "93 to 100 %", "40.0", "60.0", "surest 50%", "Expected calibration error", "0.125"):
        assert words in page.text, words
    # What the figure shows is no part of the images beside it, and no metric by resolution.
    assert 'id="parts"' not in text
    assert "Confidence" not in page.text
    without = render(Report("t", "c", [], accuracy_rows(VALUES, SIZES)))
    assert 'id="sure"' not in without
    assert "#sure" not in without


def test_a_bin_of_one_knob_alone_is_of_that_knob():
    """A bin that holds images at the default knob, and none at the tuned one, is no line of its own."""
    rows = [one for one in calibrated() if one.run == "a"]
    tuned = [replace(one, tuned=True) for one in rows if one.slices != {"confidence_bin": 5}]
    study = Study.of([*rows, *tuned])
    names = [[line.label for line in study.lines("top1_in_bin", slices={"confidence_bin": bin})] for bin in (5, 15)]
    assert names == [["a (default knob)"], ["a (default knob)", "a (tuned knob)"]]
    assert ">a<" not in re.sub(r"\s", "", figures.reliability(study))


def test_a_fitted_temperature_stands_by_resolution_on_the_page():
    """What it was fitted on is no part of the images."""
    fitted = {"slices": {"fitted_on": "minival"}, "unit": ""}
    rows = accuracy_rows(VALUES, SIZES)
    for size in SIZES:
        rows.append(row("a", 1.0625 + size, size, metric="temperature", better="", count=30, **fitted))
        rows.append(row("a", 0.0625, size, metric="ece_tempered", better="lower", **fitted))
    text = render(Report("t", "c", [], rows))
    assert 'id="parts"' not in text
    for words in ("Fitted temperature", "33.06", "65.06", "calibration error at the fitted temperature", "0.0625"):
        assert words in Page(text).text, words
    shown = printed(rows)
    assert "calibration error at the fitted temperature, split test" in " ".join(shown.split())
    assert "33.06" not in shown


def test_bins_of_one_kind_alone_are_no_figure():
    rows = [one for one in calibrated() if one.metric != "confidence"]
    assert not figures.is_calibrated(Study.of(rows))
    with pytest.raises(InputError, match="top1_in_bin by confidence_bin"):
        figures.reliability(Study.of(accuracy_rows(VALUES, SIZES)))


@pytest.mark.parametrize("narrow", [False, True])
def test_a_mark_for_each_bin_that_holds_images(narrow):
    svg = figures.reliability(Study.of(calibrated()), narrow=narrow)
    said = texts(svg)
    assert {"tested at 32 px (as trained)", "tested at 64 px", "a", "b"} <= set(said)
    marks = tuple(len(re.findall(f'<use [^>]*style="fill: {colour}', svg, re.I)) for colour in style.PALETTE[:2])
    # Of each mark both ends of its bar too. Two of run a, one of run b, in two panels each; and one in the legend.
    assert marks == (3 * 2 * 2 + 1, 3 * 2 + 1)


def test_the_terminal_has_accuracy_and_one_calibration_error():
    text = printed(calibrated())
    assert "Top-1 accuracy in %, split test" in text
    assert "Expected calibration error, split test" in text
    for absent in ("30 bins", "onfidence", "surest"):
        assert absent not in text
