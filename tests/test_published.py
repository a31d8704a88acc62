"""What papers printed: found in their text, number by number, where that is at hand; and whole in themselves."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from sightline.published import paper, papers

# A folder of the papers as text, NAME*.txt each.
TEXTS = os.environ.get("SIGHTLINE_PAPERS", "")


def test_each_is_whole():
    assert papers() == ["lookhere", "navit", "rope_vit", "vit"]
    for name in papers():
        one = paper(name)
        assert {number.table for number in one.numbers} == set(one.tables), name
        said = [(n.table, n.method, n.model, n.metric, n.data, n.shown, n.run) for n in one.numbers]
        assert len(said) == len(set(said)), name
        assert all(0 <= number.number <= 100 for number in one.numbers if number.table != "9"), name


def test_the_curve_of_a_paper_by_hand():
    line = paper("lookhere").lines()["LH-45"]
    assert line[0] == "lookhere_45"
    assert {side: one.value for side, one in line[1].items()} == {
        224: "81.06", 320: "82.45", 384: "82.38", 448: "82.19", 512: "81.62", 768: "78.13", 1024: "73.15",
    }  # fmt: skip
    assert len(paper("lookhere").lines()) == 10
    assert paper("rope_vit").lines()["RoPE-Mixed"][1][512].value == "79.1"
    assert paper("vit").lines() == {}


def words(text):
    """A text of which typesetting has joined or split words: numbers apart, in the order of the text."""
    return re.sub(r"\s+", " ", text)


@pytest.mark.skipif(not TEXTS, reason="SIGHTLINE_PAPERS names no folder of the papers' texts")
@pytest.mark.parametrize("name", ["lookhere", "navit", "rope_vit", "vit"])
def test_every_number_stands_in_the_paper(name):
    """Line by line: the numbers of a method in one table and at one size stand side by side in the text."""
    found = list(Path(TEXTS).glob(f"{name}*.txt"))
    assert found, f"{TEXTS} holds no {name}*.txt"
    text = words(found[0].read_text())
    lines: dict[tuple[str, ...], list[str]] = {}
    # Of ViT's table 9 the text ends before it, and NaViT writes its p as powers of ten.
    numbers = [one for one in paper(name).numbers if (name, one.table) not in (("vit", "9"), ("navit", "12"))]
    for one in numbers:
        lines.setdefault(line_of(name, one), []).append(one.value)
    for key, values in lines.items():
        # Between two numbers of a line stand blanks, deviations, and the gains that a table prints in brackets.
        between = r"%?(?: ?\([+-][\d.]+\)| ± [\d.]+)? ?\t? ?"
        pattern = before(name, key) + between.join(map(re.escape, values))
        assert re.search(pattern, text), (key, values)
    cells = Counter(one.table for one in numbers)
    assert sum(cells.values()) == {"lookhere": 981, "navit": 9, "rope_vit": 91, "vit": 105}[name]


def before(name, key):
    """What stands before the numbers of a line: its method, and its size, whose square is joined to the first one."""
    if name == "lookhere" and key[0] in "1256":
        return re.escape(f"{key[1]} {key[2]}2" if key[2] else f"{key[1]} ")
    return r"(?<![\d.])"


def line_of(name, one):
    """What the numbers of one printed line have in common."""
    if name == "lookhere":
        return (one.table, one.method, one.shown if one.table == "6" else "")
    if name == "navit":
        return (one.table,)
    if name == "rope_vit":
        return (one.table, one.method) if one.table == "5" else (one.table, one.model, one.run)
    return (one.table, one.method, one.data)
