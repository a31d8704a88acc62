"""The page of a comparison, its tables and sentences: all that they say stands in rows."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from io import StringIO

import pytest

from sightline.errors import InputError
from sightline.reports.comparison_page import render
from sightline.reports.comparison_tables import picked, tables
from sightline.reports.latex import csv_of, escaped, latex_of
from sightline.reports.words import DASH, TIMES
from tests.compared import COUNTS, made_rows

_BLANK, _TIMES = "\u00a0", f"4.62{TIMES}"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return made_rows(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory):
    counts = {name: [values[:1] for values in counts] for name, counts in COUNTS.items()}
    return made_rows(tmp_path_factory.mktemp("one"), counts)


def cells(table, line):
    """Of a line the values by (column, what stands below)."""
    (found,) = [one for one in table.lines if one.name == line]
    return {
        (heading.title.replace(_BLANK, " "), heading.below.replace(_BLANK, " ")): cell.value
        for heading, cell in zip(table.headings, found.cells, strict=True)
    }


def test_the_tables_are_those_of_the_rows(rows):
    made = tables(rows)
    # Nothing was attacked; without a knob there is no value.
    assert set(made) == {"1", "3", "5", "6", "7", "9", "pairs", "pairs_largest", "orders"}
    first = cells(made["1"], "lookhere_90")
    # 30, 32 and 31 of 40; of the smallest fifth all; in unseen fonts five fewer.
    assert first["Val", "test scenes, best"] == "80.0"
    assert first["Val", "test scenes, mean"] == "77.5"
    assert first["-A", "smallest objects, mean"] == "100.0"
    assert first["-R", "unseen fonts, best"] == "67.5"
    sixth = cells(made["6"], "rope_axial")
    assert sixth["148 px top-1", _TIMES] == "43.3"
    # Where it is wrong the right one is among five if its number is below 4: six more of seed 0, in all 18 of 30.
    assert sixth["148 px top-5", _TIMES] == "60.0"
    fifth = cells(made["5"], "learned_1d")
    assert fifth["Val", "test scenes, mean"] == "77.5"
    seventh = cells(made["7"], "rope_axial")
    assert seventh["148 px", "largest"] == f"{-100 * (5 / 6 + 2) / 3:.1f}"
    assert [line.name for line in made["9"].lines] == ["lookhere_90", "rope_axial"]
    assert cells(made["9"], "rope_axial") == {("32 px", ""): "0.5, 1.5, 2.5", ("148 px", ""): "0.5, 1.5, 2.5"}
    pairs = made["pairs_largest"].lines
    # 16, 15 and 17 images of 30 against 14, 17 and 18: the largest difference first.
    assert [line.name for line in pairs] == [
        "lookhere_90 less learned_1d", "lookhere_90 less rope_axial", "rope_axial less learned_1d",
    ]  # fmt: skip
    assert pairs[1].cells[3].value == "16/0, 15/0, 17/0"
    assert [cell.value for cell in pairs[2].cells[-3:]] == ["1.50", "+0.02", "overlap"]


def test_best_of_an_error_is_the_lowest(rows):
    third = cells(tables(rows)["3"], "learned_1d")
    values = next(row.values for row in picked(rows, "ece", resolution=32) if row.encoding == "learned_1d")
    assert third["Val", "test scenes, best"] == f"{min(values):.4g}"


def test_of_one_seed_nothing_is_known_of_other_trainings(one_seed):
    pairs = tables(one_seed)["pairs_largest"]
    assert {line.cells[1].value for line in pairs.lines} == {DASH}
    assert {line.cells[-1].value for line in pairs.lines} == {"one seed"}
    page = render(one_seed, command="c", demonstration=48_000)
    assert "1 training of each (seed 0)" in page
    assert "the seed stands for these settings" in page


def test_the_second_training_is_beside_the_first_at_its_size(rows):
    tested = [replace(row, resolution=56) if row in picked(rows, "top1", resolution=148) else row for row in rows]
    assert cells(tables(tested)["5"], "lookhere_90")["Val", "test scenes, mean without it"] == "96.7"


def test_csv_and_latex_have_the_numbers_of_the_page(rows):
    made = tables(rows)
    page = render(rows, command="sightline compare", demonstration=48_000)
    lines = list(csv.DictReader(StringIO(csv_of(made))))
    latex = latex_of(made)
    assert {line["table"] for line in lines} == set(made)
    (one,) = [
        line for line in lines
        if (line["table"], line["line"], line["column"], line["below"])
        == ("1", "lookhere_90", "Val", "test scenes, mean")
    ]  # fmt: skip
    assert (one["value"], one["low"], one["high"]) == ("77.5", "71.3", "83.7")
    assert r"lookhere\_90 & 80.0 & 77.5 {\scriptsize [71.3,~83.7]}" in latex
    assert latex.count(r"\begin{tabular}") == len(made)
    for line in latex.splitlines():
        assert not re.search(r"(?<!\\)[_%#]", line.replace(r"\label{tab:pairs_largest}", "")), line
    for line in lines:
        assert line["value"] in page.replace(_BLANK, " ").replace("&lt;", "<"), line


def test_latex_prints_text_as_it_stands():
    assert escaped(r"50 % of a_b & {c} \d") == r"50 \% of a\_b \& \{c\} \textbackslash{}d"


def test_the_page_stands_alone_and_is_the_same_again(rows):
    page = render(rows, command="sightline compare --out a", demonstration=48_000, notes=["A quick run."])
    assert page == render(rows, command="sightline compare --out a", demonstration=48_000, notes=["A quick run."])
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    assert "<script" not in page
    for said in (
        "3 position encodings, 3 trainings of each (seeds 0, 1 and 2)", "640 images of scenes at 32",
        "fewer images than the demonstration's 48,000", "seeds stand for these settings", "A quick run.",
        "trained on for 640 images at 56", "Table 2 (the fast gradient sign method) is left out",
        "sightline compare --out a", "(figure 1)", "(figure 7)",
    ):  # fmt: skip
        assert said in page, said
    # No size below that of training was tested.
    assert "(figure 6)" not in page
    for number in (1, 3, 5, 6, 9):
        assert f"Table {number}." in page
    more = [replace(row, train_images=48_000) for row in rows]
    assert "fewer images" not in render(more, command="c", demonstration=48_000)
    with pytest.raises(InputError, match="no row has top-1"):
        render([row for row in rows if row.metric != "top1"], command="c", demonstration=1)


def test_attacked_rows_have_their_table(rows):
    some = picked(rows, "top1", resolution=32)
    attacked = [replace(row, metric="fgsm_top5", slices={"loss": "ce", "epsilon": "1/255"}) for row in some]
    made = tables([*rows, *attacked])
    assert cells(made["2"], "lookhere_90")["1/255", "loss ce, mean"] == "77.5"
    assert "is left out" not in render([*rows, *attacked], command="c", demonstration=1)
