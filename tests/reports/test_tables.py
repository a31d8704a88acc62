"""Tables of a terminal, CSV and LaTeX, on synthetic rows."""

from __future__ import annotations

import pytest

from sightline.reports.tables import print_table
from tests.reports.synthetic import accuracy_rows, printed, row


def test_best_of_each_size_is_marked_and_no_other():
    lines = [line.split() for line in printed(accuracy_rows(), 120).splitlines()]
    numbers = {line[0]: [word for word in line[1:] if word[-1] not in ",]"] for line in lines if line}
    assert numbers["looker"] == ["76.1", "93.8", "95.8*", "89.5*"]
    assert numbers["turner"] == ["76.6*", "94.3*", "30.7", "5.5"]
    assert numbers["adder"] == ["51.4", "65.5", "63.2", "39.0"]
    assert "*" not in printed(accuracy_rows({"a": [0.5]}, [32]))


def test_a_tuned_knob_has_its_value_and_its_line():
    rows = [row(run, value, 64, metric="ece", unit="", better="lower") for run, value in (("a", 0.25), ("b", 0.5))]
    rows += [row("b", 0.125, 64, metric="ece", unit="", better="lower", knob=0.75, tuned=True)]
    text = printed([*accuracy_rows({"a": [0.5], "b": [0.5]}, [64]), *rows])
    for word in ("0.125*", "default parameter", "tuned", "0.75"):
        assert word in text


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_every_number_is_shown_whole_at_any_width(width):
    sizes = [16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 148]
    values = [0.031 + 0.0717 * place for place in range(12)]
    text = printed(accuracy_rows({"a_run_of_a_name": values, "b": values[::-1]}, sizes), width)
    assert all(len(line) <= width for line in text.splitlines())
    for size, value in zip(sizes, values, strict=True):
        assert f"{100 * value:.1f}" in text
        assert f"{size} px" in text


@pytest.mark.parametrize("width", [60, 80, 86, 100, 140])
def test_no_word_of_any_column_is_broken_or_cropped(width, monkeypatch, capsys):
    """A wide column beside narrow ones: the last, too, is shown whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        ("outputs at 16 x 24 px", "the original, imported from timm", "1.5e-07", "equal"),
        ("weights", "what it was made from, in a file with a rather long description", "6.8e-04", "DIFFERS"),
    ]
    print_table(("compared", "with", "largest difference", ""), rows)
    said = capsys.readouterr().out
    assert all(word in said.split() for row in rows for cell in row for word in cell.split())
    assert max(map(len, said.splitlines())) <= width
