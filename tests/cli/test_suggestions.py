"""What was meant, where what was typed is nearly right."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.data.image_list import list_images
from sightline.data.open import open_source, recognise_layout
from sightline.errors import InputError, did_you_mean
from sightline.io.yaml import read_yaml
from sightline.recipes import recipe
from tests.data.dense_folders import coco, masks
from tests.data.three_kinds import images, shards
from tests.tiny import pictures


@pytest.mark.parametrize("asked", ["rope", "RoPE"])
def test_a_family_of_encodings_is_named_by_its_members(asked, refused):
    said = refused("train", "--data", "digits", "--encoding", asked, says=["rope_axial", "rope_mixed"])
    assert "'irpe'" not in said
    assert did_you_mean("rope-axal", ["rope_axial", "irpe"]) == "; did you mean 'rope_axial'?"
    assert did_you_mean("lr", ["optimizer"]) == ""


@pytest.mark.parametrize(("option", "meant"), [
    ("--learning-rate", "--lr"), ("--weight_decy", "--weight-decay"), ("--encodng", "--encoding"),
    ("--optimizer.ema_decay", "--optimizer.ema"), ("--wd", "--weight-decay"), ("--batch", "--batch-size"),
    ("--image", "--images"), ("--head", "--task-options.head"), ("--set", "--optimizer.lr 1e-3"),
])  # fmt: skip
def test_settings_are_options_and_near_names_are_said(option, meant, refused):
    for words in ((option, "1"), (f"{option}=1",)):
        refused("train", "--data", "digits", *words, says=[f"Did you mean {meant}?"])


def test_the_names_that_people_type_are_options(cli, tmp_path):
    out = tmp_path / "run"
    words = ["--lr", "2e-3", "--batch-size", "16", "--epochs", "2", "--flip", "0.5", "--val", "null"]
    data = pictures(tmp_path / "data")
    words += ["--resolution", "8"]
    assert cli("train", data, *words, "--weight-decay", "0", "--threads", "1", "--out", out)[0] == 0
    config = read_yaml(out / "config.yaml")
    found = [config[name] for name in ("batch_size", "images", "flip", "validation")]
    assert (found, config["optimizer"]["lr"], config["optimizer"]["weight_decay"]) == ([16, 16, 0.5, None], 2e-3, 0)
    assert config["data"] == data


def test_every_layout_of_a_folder_is_recognised(cli, tmp_path):
    pictures(tmp_path / "data")
    folders = {
        "images": (tmp_path / "data" / "train" / "a", "masked_patches"),
        "masks": (masks(tmp_path / "m"), "segmentation"),
        "coco": (coco(tmp_path / "c"), "detection"),
        "wds": (shards(tmp_path / "w", images(count=1)).partition(":")[2], "classification"),
    }
    for kind, (folder, task) in folders.items():
        words = ["--model", "vit_micro_patch4", "--resolution", 32, "--images", 4, "--threads", 1]
        code, _, err = cli("train", folder, *words, "--out", tmp_path / kind)
        assert code == 0, err
        config = read_yaml(tmp_path / kind / "config.yaml")
        assert (config["data"], config["task"]) == (f"{kind}:{folder}", task)
        assert f"{kind}:{folder}" in err
        # Of images alone it is said that labels are wanting, and where they would stand.
        assert ("DIR/train/CLASS" in err) == (kind == "images")
        assert kind != "images" or task in err
        assert json.loads(cli("data", "check", folder, "--json")[1])["data"] == f"{kind}:{folder}"
    # Images beside an archive, or above a folder of masks, are the images of a folder.
    mixed = tmp_path / "mixed"
    (mixed / "masks").mkdir(parents=True)
    for name in ("a.png", "masks/b.png"):
        Image.new("RGB", (8, 8)).save(mixed / name)
    (mixed / "backup.tar").write_bytes((tmp_path / "w" / "train-0000.tar").read_bytes())
    assert list(list_images([str(mixed)])) == [str(mixed / "a.png"), str(mixed / "masks" / "b.png")]
    # Classes of these names.
    for name in ("masks", "hats"):
        (tmp_path / "classes" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "classes" / name / "0.png")
    assert recognise_layout(str(tmp_path / "classes")) == f"imagefolder:{tmp_path / 'classes'}"
    # Masks are none of the images.
    code, out, err = cli("predict", tmp_path / "masks", tmp_path / "m", "--json")
    assert code == 0, err
    assert {Path(json.loads(line)["image"]).relative_to(tmp_path).parts[1] for line in out.splitlines()} == {"images"}


def test_more_epochs_of_a_run_are_another_one(cli, tmp_path):
    data = pictures(tmp_path / "data")
    words = ["--data", data, "--resolution", "8", "--threads", "1", "--model", "vit_micro_patch4", "--out"]
    assert cli("train", *words, tmp_path / "run", "--epochs", "1")[0] == 0
    code, _, err = cli("train", *words, tmp_path / "run", "--epochs", "2", "--resume")
    assert code == 2
    assert f"--init-from {tmp_path / 'run'} --out" in err
    code, _, err = cli(
        "train", *words[:6], "--init-from", tmp_path / "run", "--out", tmp_path / "more", "--epochs", "1"
    )
    assert code == 0, err


@pytest.mark.parametrize("kind", ["masks", "coco"])
def test_a_size_that_is_another_by_exif_alone_says_so(kind, tmp_path):
    made = {"masks": masks, "coco": coco}[kind](tmp_path / kind)
    source = open_source(f"{kind}:{made}")
    path = source.example_name("train", 0)
    with Image.open(path) as stored:
        pixels = np.asarray(stored)
    for orientation, said in ((6, True), (3, None), (8, True)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(pixels).save(path, exif=exif)
        found = [one.reason for one in open_source(f"{kind}:{made}").check_readable("train", skip_unreadable=1)[1]]
        assert [("EXIF" in one, True) for one in found] == ([(said, True)] if said else [])
    Image.fromarray(pixels.transpose(1, 0, 2)).save(path)
    [found] = open_source(f"{kind}:{made}").check_readable("train", skip_unreadable=1)[1]
    assert "EXIF" not in found.reason


def test_a_folder_that_does_not_exist_is_named_with_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_images" / "train").mkdir(parents=True)
    for spec in ("my_imagez", "./my_imagez", str(tmp_path / "my_imagez"), "my_imagez,minival=0.1"):
        with pytest.raises(InputError, match=r"no such folder; did you mean .*my_images\?"):
            open_source(spec)
    with pytest.raises(InputError, match=r"no such folder$"):
        open_source("./nowhere")
    # Nearer to a data set than to a folder.
    with pytest.raises(InputError, match=r"data set .*'scenes'"):
        open_source("scene")


@pytest.mark.parametrize("classes", [None, 2])
def test_a_head_of_other_classes_than_the_data_is_said(classes, cli, tmp_path):
    data = pictures(tmp_path / "data")
    words = ["--no-pretrained", "--data", data, "--resolutions", 32, "--threads", 1, "--out", tmp_path / "out"]
    asked = [] if classes is None else ["--num-classes", classes]
    code, out, err = cli("evaluate", "timm:vit_tiny_patch16_224", *words, *asked)
    assert code == 0, err
    following = shlex.split(out.splitlines()[-1])[2:]
    said = [] if classes is None else ["--num-classes", "2"]
    opened = ["timm:vit_tiny_patch16_224", "--no-pretrained", *said, "--data", data]
    assert following == ["analyse", *opened, "--out", "analysis"]
    assert ("--num-classes 2" in err) == (classes is None)


def test_a_recipe_of_a_path_alone_says_what_is_there(tmp_path):
    folder = pictures(tmp_path / "data").partition(":")[2] or str(tmp_path / "data")
    with pytest.raises(InputError, match=f"did you mean imagefolder:{folder}"):
        recipe("imagefolder", folder)
