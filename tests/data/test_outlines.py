"""Polygons and runs as pycocotools decodes them, whose answers are in `coco_masks`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.data.outlines import OutlineList, runs_of_text

CASES = json.loads((Path(__file__).parent / "coco_masks" / "pycocotools.json").read_text())
SQUARE = [1.0, 1, 5, 1, 5, 4, 1, 4]


def mask(outline: Any, size: tuple[int, int]) -> np.ndarray:
    outlines = OutlineList()
    outlines.add(outline, size)
    found = outlines.mask(0, size)
    assert found.dtype == bool
    assert found.shape == size
    return found


@pytest.mark.parametrize("case", CASES["polygons"])
def test_polygons_are_drawn_as_pycocotools_draws_them(case):
    found = mask(case["polygons"], tuple(case["size"]))
    assert ["".join(map(str, row)) for row in found.astype(int).tolist()] == case["rows"]


@pytest.mark.parametrize("case", CASES["texts"])
def test_texts_of_runs_are_read_as_pycocotools_writes_them(case):
    assert runs_of_text(case["text"]) == case["runs"]
    for counts in (case["text"], case["runs"]):
        assert mask({"size": case["size"], "counts": counts}, tuple(case["size"])).sum() == case["area"]


def test_runs_go_down_the_columns_and_begin_outside():
    assert mask({"size": [3, 2], "counts": [1, 2, 3]}, (3, 2)).astype(int).tolist() == [[0, 0], [1, 0], [1, 0]]
    assert mask({"size": [3, 2], "counts": [0, 6]}, (3, 2)).all()


@pytest.mark.parametrize("text", ["1\x1f", "1ü", "q1", "5P"])
def test_texts_that_are_none(text):
    with pytest.raises(ValueError, match="counts"):
        runs_of_text(text)


def test_a_polygon_s_own_holes_and_overlaps():
    """Within one polygon the number of crossings counts; several together are what lies in any."""
    assert not mask([SQUARE + SQUARE], (10, 10)).any()
    assert (mask([SQUARE, SQUARE], (10, 10)) == mask([SQUARE], (10, 10))).all()


@pytest.mark.parametrize(
    "outline",
    [
        [SQUARE, "x"],
        [SQUARE, [1, 2, "3", 4, 5, 6]],
        [[1, 2, 10**400, 4, 5, 6]],
        7,
        {"size": [6, 7]},
        {"size": [6, 7], "counts": [1, 2]},
        {"size": [6, 7], "counts": []},
        {"size": [6, 7], "counts": [43, -1]},
        {"size": [6], "counts": [42]},
        {"size": [6, 7], "counts": [1.5, 40.5]},
        {"size": [6, 7], "counts": "5P"},
        {"size": [6, 7], "counts": [2**70]},
        {"size": [7, 6], "counts": [42]},
        [[0, 0, 1e5, 0, 50, 5]],
        [[0, 0, float("nan"), 0, 9, 9]],
    ],
)
def test_what_is_no_outline_of_an_image_is_refused_without_a_trace(outline):
    outlines = OutlineList()
    outlines.add([SQUARE], (6, 7))
    with pytest.raises(ValueError, match="its outline: "):
        outlines.add(outline, (6, 7))
    assert outlines.add([SQUARE[:4], SQUARE], (6, 7)) == 1
    assert outlines.add([], (6, 7)) == 0
    assert (outlines.mask(0, (6, 7)) == outlines.mask(1, (6, 7))).all()
    assert outlines.mask(0, (6, 7)).sum() == 12
    assert [outlines.known(number) for number in range(3)] == [True, True, False]
