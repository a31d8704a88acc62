"""Suites whose files are damaged: refused in one line, and nothing is measured of the wrong class."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from sightline.errors import InputError
from sightline.evaluation.imagenet import synsets
from sightline.evaluation.scoring import scoring_from
from sightline.evaluation.suites.base import open_suite
from tests.evaluation.suite_data import imagenet_s, objectnet, picture, validation


@pytest.mark.parametrize("label", [["Banana"], {}, None, 5])
def test_a_label_of_objectnet_that_is_no_name_is_refused(label, tmp_path):
    file = objectnet(tmp_path) / "objectnet-1.0" / "mappings" / "folder_to_objectnet_label.json"
    file.write_text(json.dumps({"alarm_clock": "Alarm clock", "banana": label, "yoga_mat": "Yoga mat"}))
    with pytest.raises(InputError, match=r"folder_to_objectnet_label\.json: banana: expected the name of a class"):
        open_suite(f"objectnet:{tmp_path}")


def test_a_missing_folder_of_images_is_what_is_wrong(tmp_path):
    folder = objectnet(tmp_path / "objectnet") / "objectnet-1.0" / "images"
    shutil.rmtree(folder)
    with pytest.raises(InputError, match=re.escape(f"{folder}: no such folder (expected objectnet: CLASS/images")):
        open_suite(f"objectnet:{tmp_path / 'objectnet'}")
    folder = imagenet_s(tmp_path / "masks", [(synsets()[0], 5)]) / "ImageNetS919" / "validation"
    shutil.rmtree(folder)
    with pytest.raises(InputError, match=re.escape(f"{folder}: no such folder (expected imagenet-s: CLASS/images")):
        open_suite(f"imagenet-s:{tmp_path / 'masks'}")


def test_an_image_that_is_listed_with_two_classes_is_refused(tmp_path):
    validation(tmp_path / "val", {1: 0, 2: 0}, flat=True)
    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2)]
    file = tmp_path / "val.txt"
    # The same said twice is no question.
    file.write_text(f"{names[0]} 65\n{names[1]} 970\n{names[0]} 65\n")
    (part,) = open_suite(f"imagenet:{tmp_path}").parts
    assert part.source.labels_of("test") == [65, 970]
    file.write_text(f"{names[0]} 65\n{names[1]} 970\n{names[0]} 66\n")
    with pytest.raises(
        InputError, match=r"val\.txt:3: 'ILSVRC2012_val_00000001\.JPEG' is of class 66, above of class 65"
    ):
        open_suite(f"imagenet:{tmp_path}")


def test_a_class_that_is_listed_twice_would_move_all_numbers_in_masks(tmp_path):
    imagenet_s(tmp_path, [(synsets()[0], 5), (synsets()[5], 5)])
    file = tmp_path / "ImageNetS_categories_im919.txt"
    file.write_text(f"{synsets()[0]}\n{synsets()[0]}\n{synsets()[5]}\n")
    with pytest.raises(InputError, match=rf"im919\.txt: names {synsets()[0]} twice"):
        open_suite(f"imagenet-s:{tmp_path}")


@pytest.mark.parametrize(
    "name", ["", ".", "/etc/h1.png", "../h1.png", "a/../../h1.png", "a\x00b.png", "\ud800.png", "h1.png"]
)
def test_a_name_in_the_list_of_hr_is_of_one_file_in_its_folder(name, tmp_path):
    folder = tmp_path / "imagenet-hr"
    picture(folder / "h1.png")
    picture(tmp_path / "h1.png")
    first = {"file_name": "h1.png", "labels": [1]}
    lines = [json.dumps(one) for one in (first, {"file_name": name, "labels": [2]})]
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    said = "names the image of line 1 again" if name == "h1.png" else "expected file_name, of a file in this folder"
    with pytest.raises(InputError, match=rf"metadata\.jsonl:2: .*{said}"):
        open_suite(f"imagenet:{tmp_path}")


@pytest.mark.parametrize(("right", "classes"), [([[0.0]], None), ([[True]], [0, 1]), ([[0]], [0.0, 1])])
def test_a_stored_scoring_of_other_numbers_than_whole_ones_is_none(right, classes):
    with pytest.raises(ValueError, match="whole numbers of classes"):
        scoring_from({"data": "a", "right": right, "classes": classes}, np.array([0]), 2)
