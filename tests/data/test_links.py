"""Links to folders: every reader follows them, and none goes in a ring."""

from __future__ import annotations

import os

import pytest

from sightline.data.clip_file import list_clips
from sightline.data.image_list import list_images
from sightline.data.open import open_source, source_class
from tests.clips import frames_of, save_folder
from tests.data.dense_folders import coco, masks
from tests.data.test_image_folder import save


@pytest.fixture
def root(tmp_path):
    """Two classes, of which the images of one are elsewhere, in folders of two years, one a link in a link."""
    for number, name in enumerate(
        ("data/train/a/0", "data/train/b/1", "data/test/a/2", "far/3", "far/deep/4", "old/5")
    ):
        save(tmp_path / f"{name}.png", number)
    (tmp_path / "data" / "train" / "a" / "2020").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "2019").symlink_to("../old")
    return tmp_path / "data"


def names(source, split="train"):
    return [os.path.basename(source.example_name(split, index)) for index in range(source.length(split))]


def test_links_below_a_class_folder_are_followed(root):
    source = open_source(f"imagefolder:{root}")
    assert names(source) == ["0.png", "5.png", "3.png", "4.png", "1.png"]
    assert source.labels == [0, 0, 0, 0, 1, 0]
    assert source.skipped == ()
    assert names(open_source(f"images:{root}")) == names(source)
    assert {str(one) for one in source_class("imagefolder").folders(str(root))} == {
        str(one) for one in (root, root.parent / "far", root.parent / "old")
    }


@pytest.mark.parametrize(("place", "target"), [
    ("train/a/ring", "."), ("train/a/ring", ".."), ("train/a/ring", "{root}"), ("train/a/ring", "{root}/.."),
    ("train/a/2020/deep/ring", "."), ("train/a/2020/deep/ring", ".."), ("train/a/2020/deep/ring", "{root}/train"),
])  # fmt: skip
def test_no_folder_is_entered_below_itself(place, target, root):
    before = names(open_source(f"imagefolder:{root}"))
    (root / place).symlink_to(target.format(root=root))
    source = open_source(f"imagefolder:{root}")
    assert names(source) == before
    assert [one.path for one in source.skipped] == [str(root / place)]


def test_a_folder_of_predict(root, monkeypatch):
    monkeypatch.chdir(root)
    (root / "train" / "up").symlink_to("..")
    found = [
        "train/a/0.png", "train/a/2020/3.png", "train/a/2020/2019/5.png", "train/a/2020/deep/4.png", "train/b/1.png"
    ]  # fmt: skip
    skipped = []
    assert sorted(list_images(["train"], skipped=skipped)) == sorted(found)
    assert [one.path for one in skipped] == ["train/up"]
    assert sorted(list_images(["train/**/*.png"])) == sorted(found)


def test_clips_are_followed_too(tmp_path):
    for number, name in enumerate(("data/train/a/0", "data/train/b/0", "far/one", "far/deep/two")):
        save_folder(tmp_path / name, frames_of(number, 2))
    (tmp_path / "data" / "train" / "a" / "more").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "deep" / "up").symlink_to("..")
    source = open_source(f"clips:{tmp_path / 'data'}")
    assert names(source) == ["0", "two", "one", "0"]
    found = [str(one) for one in list_clips([str(tmp_path / "data" / "train" / "a")])]
    assert found == [str(tmp_path / "data" / "train" / "a" / one) for one in ("0", "more/deep/two", "more/one")]


def test_masks_and_objects_are_followed_too(tmp_path):
    masks(tmp_path / "m")
    for kind in ("images", "masks"):
        (tmp_path / "m" / kind / "train" / "deep").rename(tmp_path / kind)
        (tmp_path / "m" / kind / "train" / "there").symlink_to(tmp_path / kind)
    assert open_source(f"masks:{tmp_path / 'm'}").length("train") == 3
    coco(tmp_path / "c")
    (tmp_path / "c" / "train2017").rename(tmp_path / "far")
    (tmp_path / "c" / "train2017").symlink_to(tmp_path / "far")
    assert open_source(f"coco:{tmp_path / 'c'}").length("train") == 3
