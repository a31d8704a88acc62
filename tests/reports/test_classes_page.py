"""Tables and figures of classes: every number that they show, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np

from sightline.evaluation.class_effects import class_effects
from sightline.reports import classes_page
from sightline.results.classes import ClassStudy, ClassTable

NAMES = ["cat", "a$b", "<hen>"]
ANSWERS = {
    ("a", "16 px"): [0, 0, 1, 0, 2, 2], ("a", "32 px"): [2, 2, 1, 1, 2, 2],
    ("b", "16 px"): [0, 0, 1, 0, 2, 2], ("b", "32 px"): [0, 0, 1, 1, 2, 2],
}  # fmt: skip
CHANCES = {"16 px": np.eye(3) * 0.7 + 0.1, "32 px": np.array([[0.25, 0.125, 0.625], [0, 1, 0], [0, 0, 1]])}


def study(lines="ab", sizes=("16 px", "32 px")):
    tables = [
        ClassTable(line, shown, float(shown[:2]), "16 px", NAMES, np.array([0, 0, 1, 1, 2, 2]), np.array(answers),
                   CHANCES[shown])
        for (line, shown), answers in ANSWERS.items() if line in lines and shown in sizes
    ]  # fmt: skip
    return ClassStudy(tables)


def test_tables_by_hand():
    one = study()
    found = {
        table.caption: [[head.name, *(cell.value for cell in cells)] for head, cells in table.lines]
        for table in classes_page.tables(one, class_effects(one), 2)
    }
    assert found == {
        "Top-1 minus that at 16 px": [["a", "32 px", "-16.67", "30.73"], ["b", "32 px", "+16.67", "16.67"]],
        "Largest falls of accuracy": [["cat", "100.00", "50.00", "-50.00", "0.00", "2"]],
        "Largest rises of accuracy": [["a$b", "50.00", "100.00", "+50.00", "50.00", "2"]],
        "Largest spreads of accuracy between models at 32 px": [["cat", "0.00 (a)", "100.00 (b)", "100.00"]],
        "Largest spreads of accuracy between sizes": [
            ["cat", "50.00 (32 px)", "100.00 (16 px)", "50.00"], ["a$b", "50.00 (16 px)", "100.00 (32 px)", "50.00"],
        ],
        "Largest falls of images named so": [["cat", "50.00", "16.67", "-33.33", "16.67", "6"]],
        "Largest rises of images named so": [
            ["a$b", "16.67", "33.33", "+16.67", "16.67", "6"], ["<hen>", "33.33", "50.00", "+16.67", "10.54", "6"],
        ],
        "Largest spreads of images named so between models at 32 px": [
            ["cat", "0.00 (a)", "33.33 (b)", "33.33"], ["<hen>", "33.33 (b)", "66.67 (a)", "33.33"],
        ],
        "Largest spreads of images named so between sizes": [
            ["cat", "16.67 (32 px)", "50.00 (16 px)", "33.33"], ["a$b", "16.67 (16 px)", "33.33 (32 px)", "16.67"],
        ],
        "Largest gaps of accuracy at 32 px": [["cat", "a", "b", "-100.00", "0.00", "2"]],
        # .8 - .25 and .625 - .1
        "Confused pairs, by moved probability": [["cat", "<hen>", "107.50", "2"]],
    }  # fmt: skip
