"""What was meant, where what was typed is nearly right."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from sightline.data.discovery import open_source
from sightline.data.stored import StoredImages
from sightline.errors import nearest
from tests.data.dense_folders import coco, masks
from tests.data.three_kinds import images, saved, shards
from tests.tiny import pictures


@pytest.mark.parametrize("asked", ["rope", "RoPE"])
def test_a_family_of_encodings_is_named_by_its_members(asked, refused):
    said = refused("train", "--data", "digits", "--encoding", asked, says=["rope_axial", "rope_mixed"])
    assert "'irpe'" not in said
    assert nearest("rope-axal", ["rope_axial", "irpe"]) == "; did you mean 'rope_axial'?"
    assert nearest("lr", ["optimizer"]) == ""


@pytest.mark.parametrize(("option", "says"), [
    ("--lr", "--set optimizer.lr="), ("--batch-size", "--set batch_size="), ("--learning-rate", "--set optimizer.lr="),
    ("--weight-decay", "--set optimizer.weight_decay="), ("--optimizer.lr", "--set optimizer.lr="),
    ("--weight_decy", "--set optimizer.weight_decay="), ("--encodng", "--encoding"),
])  # fmt: skip
def test_options_that_are_settings(option, says, refused):
    for words in ((option, "1"), (f"{option}=1",)):
        refused("train", "--data", "digits", *words, says=[f"Did you mean {says}"])


def test_a_folder_alone_is_what_it_looks_like(cli, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "data")
    short = ["--model", "vit_micro_patch4", "--resolution", "8", "--images", "4", "--threads", "1"]
    for number, words in enumerate((["data"], ["--data", "data"], ["imagefolder:data"])):
        code, _, err = cli("train", *words, *short, "--out", f"run{number}")
        assert code == 0, err
        assert "data: imagefolder:data" in (tmp_path / f"run{number}" / "config.yaml").read_text()
    assert json.loads(cli("data", "check", "data", "--json")[1])["data"] == "imagefolder:data"
    assert cli("evaluate", "run0", "--data", "data", "--resolutions", "8")[0] == 0
    assert cli("train", "data,minival=0.3", *short, "--out", "held")[0] == 0
    for kind, made in (
        ("images", str(tmp_path / "data" / "train" / "a")),
        ("masks", str(masks(tmp_path / "m"))),
        ("coco", str(coco(tmp_path / "c"))),
        ("wds", shards(tmp_path / "w", images(count=1)).partition(":")[2]),
    ):
        refused("train", made, says=[f"did you mean {kind}:{made}?"])
        assert isinstance(open_source(f"{kind}:{made}"), StoredImages)


def test_a_table_alone_is_named(refused, tmp_path):
    pytest.importorskip("datasets")
    made = saved(tmp_path / "h", images(count=1)).partition(":")[2]
    refused("train", made, says=[f"did you mean hf:{made}?"])


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
