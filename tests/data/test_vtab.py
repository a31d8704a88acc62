"""Tasks of VTAB-1k in the layout in which they are passed on."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sightline.data.crops import whole_crop
from sightline.data.open import open_source, recognise_layout
from sightline.data.sources.vtab import TASKS, tasks_below
from sightline.errors import InputError
from tests.vtab import write_task


def test_lists_are_splits_and_val200_is_held_out(tmp_path):
    root = write_task(tmp_path / "vtab-1k" / "svhn")
    source = open_source(f"vtab:{root}")
    assert (source.splits, source.classes) == (("train", "test"), tuple("0123456789"))
    assert (source.length("train"), source.length("test")) == (50, 12)
    assert source.labels_of("test") == [number % 10 for number in range(50, 62)]
    apart = open_source(f"vtab:{root},minival=0.2")
    assert apart.splits == ("train", "minival", "test")
    names = [apart.example_name("minival", index) for index in range(apart.length("minival"))]
    assert names == [str(root / f"images/{number}.png") for number in range(40, 50)]
    assert apart.length("train") == 40
    # Another share is drawn, as of other files.
    assert open_source(f"vtab:{root},minival=0.1").length("minival") == 5


def test_both_parts_stand_for_the_list_of_all(tmp_path):
    root = write_task(tmp_path / "eurosat")
    (root / "train800val200.txt").unlink()
    assert open_source(f"vtab:{root}").length("train") == 50


def test_the_whole_test_is_measured(tmp_path):
    """An image that train holds too counts, as in the published numbers."""
    root = write_task(tmp_path / "dtd")
    (root / "images" / "50.png").write_bytes((root / "images" / "0.png").read_bytes())
    assert open_source(f"vtab:{root}").length("test") == 12


@pytest.mark.parametrize(
    ("task", "cut", "mirrored"),
    [
        ("svhn", True, True),
        ("clevr_count", False, True),
        ("dsprites_loc", False, False),
        ("smallnorb_azi", True, False),
    ],
)
def test_images_are_cut_and_mirrored_where_labels_survive(tmp_path, task, cut, mirrored):
    source = open_source(f"vtab:{write_task(tmp_path / task, classes=6)}")
    crops = [source.transform.train_crop((20, 30), (24, 24), seed=0, epoch=0, index=index) for index in range(40)]
    assert any(crop.mirrored for crop in crops) == mirrored
    assert (len({crop.box for crop in crops}) > 1) == cut
    if not cut:
        assert {crop.box for crop in crops} == {whole_crop((20, 30), (24, 24)).box}


def test_the_tasks_are_those_of_the_paper():
    uncropped = {name for name, task in TASKS.items() if not task.cropped}
    assert uncropped == {"clevr_count", "clevr_dist", "dmlab", "kitti", "dsprites_loc"}
    assert {name for name, task in TASKS.items() if not task.mirrored} == {
        "dsprites_ori", "dsprites_loc", "smallnorb_azi",
    }  # fmt: skip
    counts = [102, 100, 47, 102, 37, 397, 10, 2, 10, 45, 5, 8, 6, 6, 16, 16, 4, 18, 9]
    assert [task.classes for task in TASKS.values()] == counts
    assert [task.group for task in TASKS.values()] == ["Natural"] * 7 + ["Specialized"] * 4 + ["Structured"] * 8


def test_what_is_below_a_folder(tmp_path):
    write_task(tmp_path / "kitti")
    found = tasks_below(tmp_path)
    assert list(found) == list(TASKS)
    assert {name for name, place in found.items() if place} == {"kitti"}
    assert tasks_below(tmp_path / "kitti") == {"kitti": tmp_path / "kitti"}
    assert recognise_layout(str(tmp_path)) == f"vtab:{tmp_path}"
    assert recognise_layout(str(tmp_path / "kitti")) == f"vtab:{tmp_path / 'kitti'}"


@pytest.mark.parametrize("line", ["images/0.png", "images/0.png cat", "7"])
def test_a_line_that_is_no_label_is_refused(tmp_path, line):
    root = write_task(tmp_path / "svhn")
    (root / "test.txt").write_text(f"images/1.png 1\n{line}\n")
    with pytest.raises(InputError, match=r"test\.txt:2"):
        open_source(f"vtab:{root}")


def test_folders_without_lists_and_labels_beyond_are_refused(tmp_path):
    root = write_task(tmp_path / "patch_camelyon", classes=3)
    for place in (root, tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError):
            open_source(f"vtab:{place}")


def test_an_image_that_is_not_there_is_named(tmp_path):
    root = write_task(tmp_path / "svhn")
    (root / "images" / "3.png").unlink()
    left, out = open_source(f"vtab:{root}").check_readable("train", skip_unreadable=1)
    assert left.length("train") == 49
    assert [one.path for one in out] == [str(root / "images/3.png")]
    example = left.example("test", 0, (8, 8))
    assert np.array_equal(example.image, np.asarray(Image.open(root / "images/50.png").resize((8, 8), 3)))


def test_a_part_that_is_asked_for_takes_the_place_of_the_tasks_own(tmp_path):
    source = open_source(f"vtab:{write_task(tmp_path / 'dmlab', classes=6)}")
    assert source.transform.parts == "whole"
    for parts in (0.35, 1.0):
        made = source.with_view(parts=parts).transform
        assert (made.parts, made.train_crop_mode, made.aspect) == (parts, None, (3 / 4, 4 / 3))
