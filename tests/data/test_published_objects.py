"""COCO's files as they are published: faults of single objects are passed over as pycocotools and torchvision do."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO

from sightline.data.annotations import runs_of_text
from sightline.data.open import open_source
from tests.data import dense_folders as folders

NO_AREA = "objects without area in their image"
SHORT = "parts of outlines with fewer than 3 points"
CUT = "boxes beyond their image, cut"
GOOD = [2.0, 2, 9, 2, 9, 8]


@pytest.fixture
def changed(tmp_path):
    """A data set in which what is said of the first object of the first image (12 x 20) is changed, and its source."""

    def make(without=(), **values) -> Any:
        def change(said):
            one = said["annotations"][-1]
            one.update(values)
            for key in without:
                del one[key]

        root = folders.coco(tmp_path / "data", change=change)
        return open_source(f"coco:{root}")

    return make


def coco_of(source, split="val2017"):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(source.root / "annotations" / f"instances_{split}.json"))


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([15, 2, 6, 3], [2, 15, 5, 20]),
        ([1, -2, 6, 3], [0, 1, 1, 7]),
        ([-3.5, -2, 100, 100], [0, 0, 12, 20]),
        ([1, 2, 6, 0], None),
        (None, None),
        ([], None),
        ([1, 2, 0, 3], None),
        ([4, 2, -2, 3], None),
        ([20, 2, 4, 3], None),
        ([-9, 2, 4, 3], None),
    ],
)
def test_boxes_are_cut_at_the_edge_and_left_out_without_area(changed, box, expected):
    source = changed(bbox=box)
    said = source.target(0, (12, 20))
    assert len(said.boxes) == (2 if expected is None else 3)
    if expected is not None:
        assert said.boxes[-1].tolist() == expected
    counted = {str(source.root / f"annotations/instances_{one}2017.json"): {NO_AREA if expected is None else CUT: 1}
               for one in ("train", "val")}  # fmt: skip
    assert source.left_out == counted
    assert source.check_readable("train")[0].length("train") == 3


@pytest.mark.parametrize(
    ("outline", "short"),
    [
        ([GOOD], 0),
        ([GOOD, [1, 2, 3, 4]], 1),
        ([[1, 2], GOOD, [], [1, 2, 3, 4, 5]], 3),
        # A last number without a second one.
        ([[*GOOD, 7]], 0),
        ([[-4, -4, 30, 2, 9, 500]], 0),
        ({"size": [12, 20], "counts": [30, 7, 203]}, 0),
        ({"size": [12, 20], "counts": "".join(map(folders.run_text, (30, 7, 203)))}, 0),
    ],
)
def test_masks_and_areas_are_those_of_pycocotools(changed, outline, short):
    source = changed(("area",), segmentation=outline)
    # What pycocotools would take for boxes.
    parts = outline if isinstance(outline, dict) else [part for part in outline if len(part) > 5]
    coco: Any = coco_of(source)
    expected = coco.annToMask({**coco.anns[5], "segmentation": parts})
    said = source.target(source.images[3], (12, 20))
    assert (said.masks[-1] == expected).all()
    assert said.areas[-1] == expected.sum() > 0
    assert [one.get(SHORT, 0) for one in source.left_out.values()] == [short] * 2 * bool(short)


@pytest.mark.parametrize("size", [(1, 1), (7, 9), (40, 300)])
def test_runs_are_read_as_pycocotools_writes_them(size):
    for seed, share in enumerate((0, 0.03, 0.5, 0.97, 1)):
        drawn = np.random.default_rng(seed).random(size) < share
        runs = runs_of_text(coco_masks.encode(np.asfortranarray(drawn.astype(np.uint8)))["counts"].decode())
        assert (drawn == np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(size[::-1]).T).all()


@pytest.mark.parametrize("key", ["area", "iscrowd", "segmentation"])
@pytest.mark.parametrize("null", [False, True])
def test_fields_that_are_missing_or_null(changed, key, null):
    before = changed().target(0, (12, 20))
    source = changed(**{key: None}) if null else changed((key,))
    said = source.target(0, (12, 20))
    assert (said.boxes == before.boxes).all()
    assert not said.crowd[-1]
    assert said.areas[-1] == (before.masks[-1].sum() if key == "area" else before.areas[-1])
    assert source.check_readable("train")[0].length("train") == 3
    # Of the box, where nothing else is known.
    source = changed(("area", "segmentation"), bbox=[15, 2, 6, 3])
    assert source.target(0, (12, 20)).areas[-1] == 15


def test_names_with_folders(tmp_path):
    """Below the images' folder, or below the folder of the data set."""
    root = folders.coco(tmp_path)
    for split in ("train2017", "val2017"):
        path = root / "annotations" / f"instances_{split}.json"
        said = json.loads(path.read_text())
        for number, one in enumerate(said["images"]):
            name = one["file_name"]
            if number:
                (root / split / "deep" / "er").mkdir(parents=True, exist_ok=True)
                (root / split / name).rename(root / split / "deep" / "er" / name)
            one["file_name"] = f"deep/er/{name}" if number else f"{split}/{name}"
        folders.write_json(path, said)
    source: Any = open_source(f"coco:{root}")
    source, _ = source.check_readable("train")
    assert source.length("train") == 3
    assert source.example_name("train", 1) == str(root / "train2017/deep/er/000000000001.jpg")
    assert np.asarray(source.example("train", 1, (8, 8)).image).shape == (8, 8, 3)
