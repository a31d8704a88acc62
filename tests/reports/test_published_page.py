"""A paper's curve beside what was measured."""

from __future__ import annotations

import pytest

from sightline.errors import InputError
from sightline.published import paper
from sightline.reports import figures
from sightline.reports.content import Report
from sightline.reports.html import render
from sightline.reports.series import Study
from sightline.reports.words import TIMES
from tests.reports.synthetic import row
from tests.reports.test_html import Page
from tests.reports.test_plots import texts


def measured(**changes):
    """Two runs of encodings of which papers print numbers, and one of which none does."""
    names = {"looker": "lookhere_90", "adder": "learned_1d", "own": "rope_dinov3"}
    return [
        row(run, 0.875 - size / 400, size, encoding=encoding, **changes)
        for run, encoding in names.items()
        for size in (32, 64, 128)
    ]


def test_every_number_of_the_curve_and_what_it_is_of():
    page = Page(render(Report("t", "c", [], measured(), papers=["lookhere", "rope_vit"])))
    assert {"lookhere", "rope_vit"} <= set(page.ids)
    assert "#rope_vit" in page.links
    for name in ("lookhere", "rope_vit"):
        assert paper(name).title in page.text
        for method, (_, points) in paper(name).lines().items():
            assert method in page.text
            assert all(one.value in page.text for one in points.values())
    assert f"4.57{TIMES}" in page.text
    assert "fine-tuned" not in page.text
    assert "lookhere" not in Page(render(Report("t", "c", [], measured()))).ids


@pytest.mark.parametrize("narrow", [False, True])
def test_lines_of_one_encoding_have_one_colour(narrow):
    svg = figures.beside_paper(Study.of(measured()), paper("lookhere"), narrow=narrow)
    said = texts(svg)
    for words in ("looker, measured", "own, measured", "LH-90, published", "1D-learn, published", "others, published"):
        assert words in said
    assert "LH-45, published" not in said
    assert {f"{times}{TIMES}" for times in (1, 2, 4)} <= set(said)
    # Each published line and its entry in the legend: eight thin ones, which share one, and those of two runs.
    assert svg.count("stroke-dasharray: 4,2;") == 8 + 1
    assert svg.count("stroke-dasharray: 7.2,3.6;") == 2 + 2


def test_a_run_trained_at_another_size_stands_at_its_own_times():
    rows = [*measured(), row("large", 0.5, 64, encoding="fourier", train_resolution=64)]
    assert "large, measured" in texts(figures.beside_paper(Study.of(rows), paper("rope_vit")))


def test_what_has_no_place_is_refused():
    with pytest.raises(InputError, match="vit: its tables hold no curve"):
        render(Report("t", "c", [], measured(), papers=["vit"]))
    others = measured(metric="corner_error", unit="px", better="lower")
    with pytest.raises(InputError, match="of top1, not of corner_error"):
        render(Report("t", "c", [], others, papers=["lookhere"]))
