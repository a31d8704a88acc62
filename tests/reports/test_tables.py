"""Tables of a terminal, CSV and LaTeX, on synthetic rows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sightline.reports.tables import escaped, print_cells, print_table, text_table
from tests.reports.synthetic import accuracy_rows, printed, row


def test_best_of_each_size_is_marked_and_no_other():
    lines = [line.split() for line in printed(accuracy_rows()).splitlines()]
    assert ["looker", "76.1", "93.8", "95.8*", "89.5*"] in lines
    assert ["turner", "76.6*", "94.3*", "30.7", "5.5"] in lines
    assert ["adder", "51.4", "65.5", "63.2", "39.0"] in lines
    assert "*" not in printed(accuracy_rows({"a": [0.5]}, [32]))


def test_a_line_a_size_where_there_are_more_sizes_than_runs():
    values = {"a": [0.5, 0.6, 0.7, 0.8], "b": [0.4, 0.5, 0.6, 0.9]}
    lines = [line.split() for line in printed(accuracy_rows(values, [32, 64, 96, 128])).splitlines()]
    place = lines.index(["32", "px", "50.0*", "40.0", "400"])
    # Wilson's, of 400 images; and what is said of the size.
    assert lines[place + 1 : place + 3] == [["trained", "45.1", "35.3"], ["54.9", "44.9"]]
    assert ["128", "px", "80.0", "90.0*", "400"] in lines


def test_a_tuned_knob_has_its_value_and_its_line():
    rows = [row(run, value, 64, metric="ece", unit="", better="lower") for run, value in (("a", 0.25), ("b", 0.5))]
    rows += [row("b", 0.125, 64, metric="ece", unit="", better="lower", knob=0.75, tuned=True)]
    text = printed([*accuracy_rows({"a": [0.5], "b": [0.5]}, [64]), *rows])
    for word in ("0.125*", "default knob", "tuned knob", "0.75"):
        assert word in text


def test_held_out_fonts_have_their_own_table():
    rows = [*accuracy_rows(), row("looker", 0.123, 32, split="heldout_fonts")]
    first, last = printed(rows).split("fonts not seen")
    assert ["12.3" in part for part in (first, last)] == [False, True]
    assert "fonts" not in printed(accuracy_rows())


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_every_number_is_shown_whole_at_any_width(width):
    sizes = [16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 148]
    values = [0.031 + 0.0717 * place for place in range(12)]
    text = printed(accuracy_rows({"a_run_of_a_name": values, "b": values[::-1]}, sizes), width)
    assert all(len(line) <= width for line in text.splitlines())
    for size, value in zip(sizes, values, strict=True):
        assert f"{100 * value:.1f}" in text
        assert f"{size} px" in text


def test_any_terminal_gets_plain_text_and_names_are_only_text():
    name = "名 … and a name that is longer than its column"
    rows = [row(name, 0.5, 64, knob=1.0), row(name, 0.7, 64, knob=0.25, tuned=True)]
    text = printed(rows, encoding="ascii")
    assert "45.1" in text
    assert "70.0*" in text
    text = printed([row("\x1b[31mred", 0.5), row("[bold]x[/nope]", 0.4)])
    assert "\x1b" not in text
    assert "[bold]x[/nope]" in text


def test_simple_table_prints_any_cells():
    stream = io.StringIO()
    console = Console(file=stream, width=80)
    rows = [["lookhere_90", "a long text " * 12, 1.0, True], ["none", None, None, False]]
    print_table(["name", "what", "knob", "relative"], rows, title="Encodings", console=console)
    text = stream.getvalue()
    assert text.startswith("Encodings\n")
    assert text.split().count("long") == 12
    assert all(len(line) <= 80 for line in text.splitlines())
    assert next(line for line in text.splitlines() if "none" in line).split() == ["none", "-", "-", "no"]


def test_texts_are_printed_as_they_are(capsys):
    print_cells(text_table("Pairs", ("class", "taken for"), [("cat", "a, b")]))
    assert ["cat", "a,", "b"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_latex_prints_text_as_it_stands():
    assert escaped(r"50 % of a_b & {c} \d") == r"50 \% of a\_b \& \{c\} \textbackslash{}d"


@pytest.mark.parametrize("width", [60, 80, 86, 100, 140])
def test_found_39_no_word_of_any_column_is_broken_or_cropped(width, monkeypatch, capsys):
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
