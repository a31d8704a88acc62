"""Images with objects, as COCO and LVIS write them: what is read, and each fault in a line."""

from __future__ import annotations

import json
import math
import pickle
import re

import numpy as np
import pytest
from PIL import Image

from sightline.data.open import open_source
from sightline.errors import InputError, UnreadableDataError
from tests.data import dense_folders as folders

SAID = {"coco": "annotations/instances_val2017.json", "lvis": "lvis_v1_val.json"}
KINDS = tuple(SAID)


def opened(kind, root):
    return open_source(f"{kind}:{root}")


@pytest.fixture
def changed(tmp_path):
    """`changed(source, change)` writes a data set, whose annotations are changed by a function; returns its folder."""
    return lambda source, change=None: folders.WRITERS[source](tmp_path / source, change=change)


def the_objects(source, split, index):
    return source.example(split, index, source.stored_size(split, index)).target


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_is_read(kind, changed):
    source = opened(kind, changed(kind))
    assert (source.splits, source.provides, source.classes) == (("train", "test"), ("objects",), ())
    # By rising id, with holes.
    assert (source.object_classes, source.category_ids) == (("car", "cat", "toothbrush"), (3, 17, 90))
    assert [source.length(split) for split in source.splits] == [3, 3]
    assert [source.stored_size("test", index) for index in range(3)] == list(folders.SIZES)
    assert [source.image_id("test", index) for index in range(3)] == [1000, 1001, 1002]
    assert source.check_readable("test")[1] == source.skipped == ()
    said = the_objects(source, "test", 0)
    # (x, y, width, height) is (y0, x0, y1, x1) here; in the order of the file, which is turned round.
    assert said.boxes.tolist() == [[2, 0, 5, 1], [2, 0, 5, 1], [2, 1.5, 8.5, 7.25]]
    assert said.labels.tolist() == [1, 2, 0]
    assert said.areas.tolist() == [3, 3, 18.7]
    assert said.crowd.tolist() == ([False, True, False] if kind == "coco" else [False] * 3)
    # Runs go down the columns: two pixels outside, three inside.
    for mask in said.masks[:2]:
        assert np.argwhere(mask).tolist() == [[2, 0], [3, 0], [4, 0]]
    assert said.masks[2].sum() == pytest.approx(18.7, abs=4)
    assert np.argwhere(said.masks[2]).min(axis=0).tolist() == [2, 2]
    # Workers get a copy.
    copied = the_objects(pickle.loads(pickle.dumps(source)), "test", 0)
    assert (copied.masks == said.masks).all()


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_without_objects_is_one(kind, changed):
    def change(said):
        said["annotations"] = [one for one in said["annotations"] if one["image_id"] != 1001]

    source = opened(kind, changed(kind, change)).check_readable("test")[0]
    assert source.length("test") == 3
    said = the_objects(source, "test", 1)
    assert (said.boxes.shape, said.masks.shape) == ((0, 4), (0, 16, 9))


def test_an_object_without_an_outline_has_a_box(changed):
    def change(said):
        del said["annotations"][-1]["segmentation"]

    source = opened("coco", changed("coco", change))
    assert the_objects(source, "test", 0).masks is None
    assert len(the_objects(source, "test", 0).boxes) == 3
    assert the_objects(source, "test", 1).masks is not None


# The annotation of the first polygon: of images[0], whose id is 5.
OBJECTS = [
    {"bbox": [1, 2, math.nan, 3]},
    {"bbox": [1, 2, math.inf, 3]},
    {"bbox": [1, 2, 3]},
    {"bbox": "1 2 3 4"},
    {"area": -1},
    {"iscrowd": 2},
    {"segmentation": [[1, 2, 3, 4, 9e9, 6]]},
    {"segmentation": [[1, 2, 3, 4, math.nan, 6]]},
    {"segmentation": {"size": [12, 20], "counts": [5, 3]}},
    {"segmentation": {"size": [12, 20], "counts": "23"}},
    {"segmentation": {"size": [20, 12], "counts": [240]}},
    *({"segmentation": outline} for outline in (7, [[1, 2, 3, 4, 5, 6], "x"], [[1, 2, "3", 4, 5, 6]])),
    *({"segmentation": {"size": [12, 20], "counts": counts}}
      for counts in (None, [1, 2], [], [241, -1], [1.5, 238.5], [2**70], "5P", "1\x1f", "1ü", "q1")),
]  # fmt: skip


@pytest.mark.parametrize("change", OBJECTS, ids=str)
def test_what_is_wrong_with_an_object(change, changed):
    """Its image cannot be read, and that is said before anything is decoded."""
    source = opened("coco", changed("coco", lambda said: said["annotations"][-1].update(change)))
    with pytest.raises(UnreadableDataError, match="annotation 5: "):
        source.check_readable("test")
    with pytest.raises(UnreadableDataError, match="annotation 5: "):
        source.example("test", 0, (8, 8))
    remaining, [left_out] = source.check_readable("test", skip_unreadable=1)
    assert (remaining.length("test"), left_out.path) == (2, source.example_name("test", 0))


def one_more(key, **values):
    return lambda said: said[key].append({**said[key][0], **values})


def put(key, number, **values):
    return lambda said: said[key][number].update(values)


# What is named, and the change.
FILES = [
    ("annotations[1]", put("annotations", 1, image_id=77)),
    ("annotations[1]", put("annotations", 1, category_id=4)),
    ("images[3]", one_more("images")),
    ("annotations[8]", one_more("annotations")),
    ("categories[3]", one_more("categories", name="b")),
    ("annotations[2]", lambda said: said["annotations"][2].pop("id")),
    ("annotations[2]", lambda said: said["annotations"][2].pop("bbox")),
    ("images[1]", put("images", 1, height=0)),
    ("images[1]", put("images", 1, id="a")),
    ("images[1]", lambda said: said["images"][1].pop("file_name")),
    ("images", lambda said: said.pop("images")),
    ("images[0]", lambda said: said.update(images=[3])),
    ("images", lambda said: said.update(images=3)),
    ("images[1]", put("images", 1, file_name="../train2017/a.jpg")),
]


@pytest.mark.parametrize(("says", "change"), FILES)
def test_a_file_that_contradicts_itself(says, change, changed):
    with pytest.raises(InputError) as caught:
        opened("coco", changed("coco", change))
    # Written for both splits alike, and the first is refused.
    place, _, said = str(caught.value).partition(": ")
    assert place.endswith(SAID["coco"].replace("val", "train"))
    assert says in said
    assert "\n" not in said


@pytest.mark.parametrize("kind", KINDS)
def test_images_that_are_missing_too_many_or_of_another_size(kind, changed):
    root = changed(kind)
    source = opened(kind, root)
    path = source.example_name("test", 1)
    # As it lies in the file; its upright size counts.
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(path).save(path, exif=exif)
    with pytest.raises(UnreadableDataError, match=re.escape(path)):
        opened(kind, root).check_readable("test")
    folders.picture(root / "val2017" / "more.jpg", (8, 8), 0)
    # LVIS' folders are another data set's too.
    assert [one.path for one in opened(kind, root).skipped] == [str(root / "val2017/more.jpg")] * (kind == "coco")
    (root / path).unlink()
    with pytest.raises(InputError, match=path):
        opened(kind, root)


def test_other_categories_in_the_other_file(changed):
    root = changed("coco")
    said = json.loads((root / SAID["coco"]).read_text())
    said["categories"][0]["name"] = "broom"
    folders.write_json(root / SAID["coco"], said)
    with pytest.raises(InputError, match=r"instances_val2017\.json"):
        opened("coco", root)
