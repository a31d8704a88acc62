"""Falls, rises, spreads, gaps and confused pairs against definitions that are written out, image by image."""

from __future__ import annotations

import numpy as np
import pytest

from sightline.errors import InputError
from sightline.evaluation.class_effects import class_effects
from sightline.reports.classes_page import largest
from sightline.results.classes import MEAN, ClassStudy, ClassTable
from sightline.results.rows import dump_rows

SIZES = {"16 px": 16.0, "24 px": 36.0, "tokens:64": 64.0}


def table(line, shown, labels, answers, classes, chances=None, trained="16 px"):
    names = [f"class {number}" for number in range(classes)]
    chances = np.zeros((classes, classes)) if chances is None else chances
    return ClassTable(line, shown, SIZES[shown], trained, names, np.array(labels), np.array(answers), chances)


def drawn(seed, images, classes, lines):
    """Tables of lines at all sizes, in an order that says nothing; answers are right half of the time."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, classes, images)
    made = []
    for shown in ("tokens:64", "16 px", "24 px"):
        for line in lines:
            answers = np.where(draw.random(images) < 0.5, labels, draw.integers(0, classes, images))
            chances = draw.dirichlet(np.ones(classes), classes) * (np.bincount(labels, minlength=classes) > 0)[:, None]
            made.append(table(line, shown, labels, answers, classes, chances))
    return made


def by_hand():
    """Three classes of two images each. Line a loses class 0 to class 2, line b stays; both are wrong of one of class 1
    at first, and right in the end."""
    labels = [0, 0, 1, 1, 2, 2]
    answers = {
        ("a", "16 px"): [0, 0, 1, 0, 2, 2], ("a", "tokens:64"): [2, 2, 1, 1, 2, 2],
        ("b", "16 px"): [0, 0, 1, 0, 2, 2], ("b", "tokens:64"): [0, 0, 1, 1, 2, 2],
    }  # fmt: skip
    before, after = np.eye(3) * 0.8 + 0.1 * (1 - np.eye(3)), np.array([[0.2, 0.1, 0.7], [0, 1, 0], [0, 0, 1.0]])
    chances = {"16 px": before, "tokens:64": after}
    return [table(line, shown, labels, some, 3, chances[shown]) for (line, shown), some in answers.items()]


def test_by_hand():
    effects = class_effects(ClassStudy(by_hand()))
    found = {(one.kind, one.metric, one.line, one.name, one.shown): one for one in effects}
    assert len(found) == len(effects) == len(dump_rows(effects).splitlines())
    assert found["extrapolation", "top1", "a", "", "tokens:64"].value == pytest.approx(4 / 6 - 5 / 6)
    assert found["extrapolation", "top1", "b", "", "tokens:64"].value == pytest.approx(1 / 6)
    fall = found["change", "top1", MEAN, "class 0", "tokens:64"]
    assert (fall.value, fall.stderr, fall.count) == (-0.5, 0, 2)
    assert found["change", "top1", "a", "class 0", "tokens:64"].value == -1
    assert found["change", "predicted", MEAN, "class 2", "tokens:64"].value == pytest.approx((2 / 6) / 2)
    assert found["gap", "top1", "a", "class 0", "tokens:64"].value == -1
    assert found["spread_of_models", "top1", MEAN, "class 0", "tokens:64"].value == 1
    assert found["spread_of_sizes", "top1", MEAN, "class 1", "tokens:64"].value == 0.5
    pair = found["confusion", "probability", MEAN, "class 0", "tokens:64"]
    assert (pair.other, pair.value) == ("class 2", pytest.approx(0.6 + 0.6))
    assert found["confusion", "probability", MEAN, "class 2", "tokens:64"].value == pytest.approx(-0.2 - 0.1)
    top = largest(effects, 1)
    assert [(name, [one.name for one in some]) for name, some in top.items()] == [
        ("top1 falls", ["class 0"]), ("top1 rises", ["class 1"]), ("top1 spread_of_models", ["class 0"]),
        ("top1 spread_of_sizes", ["class 0"]), ("predicted falls", ["class 0"]), ("predicted rises", ["class 1"]),
        ("predicted spread_of_models", ["class 0"]), ("predicted spread_of_sizes", ["class 0"]), ("gap", ["class 0"]),
        ("confusion", ["class 0"]),
    ]  # fmt: skip
    assert len(largest(effects, 5)["top1 falls"]) == 1
    assert ClassStudy(by_hand()).curves("top1", "class 1") == {"a": [0.5, 1], "b": [0.5, 1]}
    assert ClassStudy(by_hand()).crossing("class 0", "class 2")["a"] == [(0.8, pytest.approx(0.1)), (0.2, 0.7)]


def test_against_another_line_and_between_other_sizes():
    tables = drawn(0, 30, 3, "abc")
    gaps = [one for one in class_effects(ClassStudy(tables), against="c") if one.kind == "gap"]
    assert {(one.line, one.against) for one in gaps} == {("a", "c"), ("b", "c")}
    means = [one for one in class_effects(ClassStudy(tables), against=MEAN) if one.kind == "gap"]
    assert {one.line for one in means} == set("abc")
    with pytest.raises(InputError, match=r"--against.*mean"):
        class_effects(ClassStudy(tables), against="d")
    study = ClassStudy(tables, ("24 px", "16 px"))
    changes = [one for one in class_effects(study) if one.kind in ("change", "confusion")]
    assert {(one.since, one.shown) for one in changes} == {("24 px", "16 px")}
    with pytest.raises(InputError, match="--between"):
        ClassStudy(tables, ("23 px", "16 px"))


def test_which_sizes_are_compared():
    """Those that all lines have; since the one of the training where that is one, else the smallest."""
    tables = drawn(0, 5, 2, "ab")
    assert ClassStudy(tables).sizes == ["16 px", "24 px", "tokens:64"]
    fewer = [one for one in tables if (one.line, one.shown) != ("b", "tokens:64")]
    assert ClassStudy(fewer).sizes == ["16 px", "24 px"]
    trained = [table(one.line, one.shown, one.labels, one.answers, 2, trained="24 px") for one in tables]
    assert ClassStudy(trained).since == "24 px"
    mixed = [table(one.line, one.shown, one.labels, one.answers, 2, trained=f"{len(one.line)} px") for one in tables]
    assert (ClassStudy(mixed).since, ClassStudy(mixed).shown) == ("16 px", "tokens:64")
    alone = [one for one in tables if one.shown == "24 px"]
    assert not ClassStudy(alone).grows
    assert {one.kind for one in class_effects(ClassStudy(alone))} == {"gap", "spread_of_models"}
    with pytest.raises(InputError, match="a, b"):
        ClassStudy([tables[0], tables[3]])
