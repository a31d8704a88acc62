"""Polygons and runs as pycocotools decodes them, whose answers are in `coco_masks`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sightline.data.outline_list import OutlineList
from sightline.data.outlines import check_runs, mask_of_polygons, mask_of_runs, runs_of_text

CASES = json.loads((Path(__file__).parent / "coco_masks" / "pycocotools.json").read_text())


@pytest.mark.parametrize("case", CASES["polygons"])
def test_polygons_are_drawn_as_pycocotools_draws_them(case):
    mask = mask_of_polygons([np.array(points) for points in case["polygons"]], tuple(case["size"]))
    assert mask.dtype == bool
    assert ["".join(map(str, row)) for row in mask.astype(int).tolist()] == case["rows"]


@pytest.mark.parametrize("case", CASES["texts"])
def test_texts_of_runs_are_read_as_pycocotools_writes_them(case):
    runs, size = runs_of_text(case["text"]), tuple(case["size"])
    assert runs.tolist() == case["runs"]
    check_runs(runs, size)
    mask = mask_of_runs(runs, size)
    assert mask.shape == size
    assert mask.sum() == case["area"]


def test_runs_go_down_the_columns_and_begin_outside():
    mask = mask_of_runs(np.array([1, 2, 3]), (3, 2))
    assert mask.astype(int).tolist() == [[0, 0], [1, 0], [1, 0]]
    assert mask_of_runs(np.array([0, 6]), (3, 2)).all()


@pytest.mark.parametrize(
    ("runs", "said"),
    [([1, 2], "add up to 3 pixels"), ([5, 2], "add up to 7"), ([], "add up to 0"), ([7, -1], "a run of -1")],
)
def test_runs_that_do_not_fill_the_image(runs, said):
    with pytest.raises(ValueError, match=said):
        check_runs(np.array(runs, np.int64), (3, 2))


@pytest.mark.parametrize(
    ("text", "said"),
    [("1\x1f", "letter"), ("1ü", "letter"), ("q1", "letter"), ("5P", "cut off"), ("o" * 9 + "1", "longer than any")],
)
def test_texts_that_are_none(text, said):
    with pytest.raises(ValueError, match=said):
        runs_of_text(text)


def test_a_polygon_s_own_holes_and_overlaps():
    """Within one polygon the number of crossings counts; several together are what lies in any."""
    square = np.array([1.0, 1, 9, 1, 9, 9, 1, 9])
    twice = np.concatenate([square, square])
    assert not mask_of_polygons([twice], (10, 10)).any()
    assert (mask_of_polygons([square, square], (10, 10)) == mask_of_polygons([square], (10, 10))).all()


def test_a_list_of_outlines_keeps_each_apart_and_refuses_without_a_trace():
    outlines = OutlineList()
    square = [1.0, 1, 5, 1, 5, 4, 1, 4]
    bad = [
        [square, "x"],
        [square, [1, 2, "3", 4, 5, 6]],
        [[1, 2, 10**400, 4, 5, 6]],
        7,
        {"size": [6, 7]},
        {"size": [6, 7], "counts": [1, 2]},
        {"size": [6], "counts": [42]},
        {"size": [6, 7], "counts": [1.5, 40.5]},
        {"size": [6, 7], "counts": "5P"},
        {"size": [6, 7], "counts": [2**70]},
    ]
    kept = []
    for one in bad:
        assert outlines.add(one)
        kept.append(len(kept) * 2)
        assert outlines.add([square]) is None
    assert outlines.add({"size": [6, 7], "counts": [40, 2]}) is None
    assert outlines.add([]) is None
    expected = mask_of_polygons([np.array(square)], (6, 7))
    assert expected.sum() == 12
    for number in kept:
        assert not outlines.known(number)
        assert (outlines.mask(number + 1, (6, 7)) == expected).all()
    assert outlines.mask(2 * len(bad), (6, 7)).sum() == 2
    assert not outlines.known(2 * len(bad) + 1)


def test_outlines_are_held_to_the_image_that_they_are_of():
    outlines = OutlineList()
    for one in ([[0, 0, 1e5, 0, 50, 5]], [[0, 0, 9, 0, 9, 9]], [[0, 0, float("nan"), 0, 9, 9]]):
        assert outlines.add(one) is None
    assert outlines.add({"size": [6, 7], "counts": [42]}) is None
    assert outlines.add({"size": [7, 6], "counts": [42]}) is None
    faults = dict(outlines.faults(np.tile([6.0, 7.0], (5, 1))))
    assert set(faults) == {0, 2, 4}
    assert faults[0].startswith("a corner at 100000.0")
    assert faults[4] == "runs of 7 x 6 pixels (expected: 6 x 7, as its image)"
    assert list(OutlineList().faults(np.zeros((0, 2)))) == []
