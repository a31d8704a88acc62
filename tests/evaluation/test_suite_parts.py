"""What suites are made of: which images, in which order and prepared how, and what is refused."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from PIL import Image

from sightline.data.sizes import View
from sightline.errors import InputError
from sightline.evaluation.imagenet import synsets
from sightline.evaluation.preparations.base import Whole
from sightline.evaluation.suite import prepare_sets
from sightline.evaluation.suites.base import list_suites, open_suite, spread_over_classes
from sightline.hub.load import load_model
from tests.evaluation.suite_data import imagenet_s, model_folder, objectnet, picture, validation

# By their ILSVRC numbers; the second has two reassessed labels, the first none.
VAL = {1: 65, 2: 970, 3: 230, 4: 809}


def test_images_in_one_folder_without_classes_are_refused(tmp_path):
    validation(tmp_path / "val", {1: 65}, flat=True)
    with pytest.raises(InputError, match="ILSVRC2012_val_00000001"):
        open_suite(f"imagenet:{tmp_path}")
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001 1\nILSVRC2012_val_00000002 2\n")
    with pytest.raises(InputError, match=r"val\.txt"):
        open_suite(f"imagenet:{tmp_path}")


def test_a_class_that_is_none_of_the_two_hundred_is_refused(tmp_path):
    picture(tmp_path / "imagenet-a" / synsets()[0] / "one.jpg")
    with pytest.raises(InputError, match=rf"{synsets()[0]}: .*imagenet-a"):
        open_suite(f"imagenet:{tmp_path}")


def test_the_frame_of_objectnet_is_cut_off(tmp_path):
    (part,) = open_suite(f"objectnet:{objectnet(tmp_path)}").parts
    made = part.source.prepared("bilinear", 1.0).example("test", 0, (16, 24)).image
    stored = np.asarray(Image.open(part.source.example_name("test", 0)))
    assert part.source.stored_size("test", 0) == (16, 24)
    assert np.array_equal(made, stored[2:-2, 2:-2])


def test_a_mask_without_its_class_is_unreadable(tmp_path, cli):
    root = imagenet_s(tmp_path / "root", [(synsets()[10], 0), (synsets()[20], 5)])
    model = model_folder(tmp_path / "model")
    words = ("evaluate", model, "--suite", f"imagenet-s:{root}", "--out", tmp_path / "out", "--resolutions", 16)
    code, _, err = cli(*words)
    assert code == 3
    assert "ILSVRC2012_val_00000001.png" in err


def test_a_head_that_does_not_fit_is_refused_with_both_counts(tmp_path, refused):
    root, model = tmp_path / "root", model_folder(tmp_path / "model", 4)
    validation(root / "val", {4: 809})
    objectnet(root)
    imagenet_s(root, [(synsets()[10], 5)])
    for suite in (f"imagenet:{root}", f"imagenet-c:{root}", f"objectnet:{root}", f"imagenet-s:{root}"):
        refused("evaluate", model, "--suite", suite, "--out", tmp_path / "out", says=["1,000", "head 4"])
    refused("evaluate", model, "--suite", "digits", "--out", tmp_path / "out", says=["10 classes", "head 4"])
    assert not (tmp_path / "out").exists()


def test_limits_spread_over_classes(tmp_path):
    """By number, images of one class stand anywhere; one of each comes before a second of any."""
    labels = [7, 7, 7, 3, 3, 9]
    assert spread_over_classes(labels, 3) == [0, 3, 5]
    assert spread_over_classes(labels, 4) == [0, 3, 4, 5]
    assert spread_over_classes(labels, 2) == [0, 3]
    assert spread_over_classes(labels, 1) == [3]
    assert spread_over_classes(labels, 99) == list(range(6))
    validation(tmp_path / "val", {**VAL, 5: 809, 6: 809})
    (part,) = open_suite(f"imagenet:{tmp_path}").parts
    few = part.limited(4)
    assert few.source.labels_of("test") == [65, 970, 230, 809]
    assert few.scorings[1].right == [(), (970, 795), (230, 231), (809,)]


def test_no_header_is_read_of_images_that_are_not_asked_for(tmp_path):
    """Of 50,000 it would take a while; and what is asked for is told from other contents."""
    validation(tmp_path / "val", {**VAL, 5: 809, 6: 809})
    (part,) = open_suite(f"imagenet:{tmp_path}").parts
    few = part.limited(2)
    told = few.digest()
    assert few.source.listing.read.sum() == 2
    assert told == open_suite(f"imagenet:{tmp_path}").parts[0].limited(2).digest()
    assert told != part.digest()
    file = next((tmp_path / "val").glob("*/*_00000001.JPEG"))
    picture(file, seed=99)
    assert told != open_suite(f"imagenet:{tmp_path}").parts[0].limited(2).digest()


def test_val_stands_in_the_order_of_its_numbers(tmp_path):
    """Of class folders the first images would be those of few classes."""
    validation(tmp_path / "val", {30: 0, 4: 999, 200: 0})
    (part,) = open_suite(f"imagenet:{tmp_path}").parts
    assert part.source.labels_of("test") == [999, 0, 0]


def test_what_is_missing_is_said_in_one_line(tmp_path):
    for suite, looked in [
        ("imagenet", "val"), ("imagenet-c", "val"), ("objectnet", "mappings"), ("imagenet-s", "ImageNetS919"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=rf"{tmp_path} .*{looked}") as caught:
            open_suite(f"{suite}:{tmp_path}")
        assert "\n" not in str(caught.value)
        for place in ("", f":{tmp_path / 'nowhere'}"):
            with pytest.raises(InputError, match=f"suite {suite}:"):
                open_suite(f"{suite}{place}")
    validation(tmp_path / "val", {4: 809})
    opened = open_suite(f"imagenet:{tmp_path}")
    assert [part.data for part in opened.parts] == ["imagenet"]
    assert len(opened.missing) == 5
    with pytest.raises(InputError, match="imagenet-hr"):
        open_suite(f"imagenet:{tmp_path},parts=val+hr")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("imagenett:x", "'imagenet'"),
        ("imagenet:x,parts=vall", "'val'"),
        ("imagenet:x,part=val", "'parts'"),
        ("imagenet:x,val=", "option val"),
        ("imagenet:x,val=a,val=b", "option val"),
    ],
)
def test_wrong_words(spec, said):
    with pytest.raises(InputError, match=said):
        open_suite(spec)


def test_one_label_an_image_is_not_imagenet_hr():
    """It has several right answers: by one of them alone a score under its name would be too low."""
    with pytest.raises(InputError, match="hf:some/place"):
        open_suite("imagenet:,hr=hf:some/place")


def test_any_data_set_is_a_suite():
    assert set(list_suites()) >= {"imagenet", "imagenet-c", "imagenet-s", "objectnet"}
    assert [(part.data, part.split) for part in open_suite("scenes").parts] == [
        ("scenes", "test"), ("scenes", "heldout_fonts"),
    ]  # fmt: skip
    assert [(part.data, part.split) for part in open_suite("scenes:pairs").parts] == [("scenes:pairs", "test")]
    assert [(part.data, part.split) for part in open_suite("digits").parts] == [("digits", "test")]


def test_images_of_other_names_have_no_reassessed_labels(tmp_path):
    picture(tmp_path / "val" / synsets()[3] / "renamed.JPEG")
    opened = open_suite(f"imagenet:{tmp_path}")
    assert [one.data for one in opened.parts[0].scorings] == ["imagenet"]
    assert opened.missing[0].startswith("imagenet-real:")


def test_a_missing_folder_of_images_is_what_is_wrong(tmp_path):
    folder = objectnet(tmp_path / "objectnet") / "objectnet-1.0" / "images"
    shutil.rmtree(folder)
    with pytest.raises(InputError, match=re.escape(f"{folder}:")):
        open_suite(f"objectnet:{tmp_path / 'objectnet'}")
    folder = imagenet_s(tmp_path / "masks", [(synsets()[0], 5)]) / "ImageNetS919" / "validation"
    shutil.rmtree(folder)
    with pytest.raises(InputError, match=re.escape(f"{folder}:")):
        open_suite(f"imagenet-s:{tmp_path / 'masks'}")


def test_a_and_objectnet_are_prepared_with_care(tmp_path):
    """NaViT's baseline keeps the aspect of their images; corrupted ones are shown whole, whatever the preparation."""
    root = tmp_path
    validation(root / "val", {4: 809})
    picture(root / "imagenet-a" / synsets()[6] / "a.jpg")
    picture(root / "imagenet-r" / synsets()[1] / "r.jpg")
    objectnet(root)
    model = load_model(model_folder(tmp_path / "model")).config
    specs = ("imagenet", "objectnet", "imagenet-c")
    parts = [part for name in specs for part in open_suite(f"{name}:{root}").parts][:5]
    shown = {one.data: one.source.transform for one in prepare_sets(model, parts, "navit_vit_baseline", [16])}
    assert {data: getattr(one, "careful", None) for data, one in shown.items()} == {
        "imagenet": False, "imagenet-a": True, "imagenet-r": False, "objectnet": True,
        "imagenet-c-gaussian_noise-1": None,
    }  # fmt: skip
    assert isinstance(shown["imagenet-c-gaussian_noise-1"], Whole)
    assert {one.views for one in prepare_sets(model, parts, "navit", [16])} == {(View("tokens", 16),)}


def test_every_class_of_corruption_is_made_by_the_name_of_the_image(tmp_path):
    """Where the data set stands, and which other images are there, changes nothing."""
    made = []
    for number, images in enumerate(({4: 809}, {3: 230, 4: 809})):
        validation(tmp_path / str(number) / "val", images)
        (part,) = open_suite(f"imagenet-c:{tmp_path / str(number)},corruptions=shot_noise,severities=2").parts
        assert part.source.stored_size("test", len(images) - 1) == (224, 224)
        made.append(part.source.prepared("bilinear", 0.5).example("test", len(images) - 1, (224, 224)).image)
    assert np.array_equal(*made)
