"""What was meant, where what was typed is nearly right."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import numpy as np
import pytest
from PIL import Image

from sightline.cli.commands.evaluate import evaluate
from sightline.cli.commands.predict import predict
from sightline.cli.commands.train import train
from sightline.cli.options import meant, option_names
from sightline.data.open import open_source
from sightline.data.stored import FileSource
from sightline.errors import _SYNONYMS, did_you_mean, near
from sightline.training.config import OptimizerConfig, TrainConfig
from tests.data.dense_folders import coco, masks
from tests.data.three_kinds import images, saved, shards
from tests.tiny import pictures


@pytest.mark.parametrize("asked", ["rope", "RoPE"])
def test_a_family_of_encodings_is_named_by_its_members(asked, refused):
    said = refused("train", "--data", "digits", "--encoding", asked, says=["rope_axial", "rope_mixed"])
    assert "'irpe'" not in said
    assert did_you_mean("rope-axal", ["rope_axial", "irpe"]) == "; did you mean 'rope_axial'?"
    assert did_you_mean("lr", ["optimizer"]) == ""


@pytest.mark.parametrize(("option", "says"), [
    ("--lr", "--set optimizer.lr="), ("--batch-size", "--set batch_size="), ("--learning-rate", "--set optimizer.lr="),
    ("--weight-decay", "--set optimizer.weight_decay="), ("--optimizer.lr", "--set optimizer.lr="),
    ("--weight_decy", "--set optimizer.weight_decay="), ("--encodng", "--encoding"),
])  # fmt: skip
def test_options_that_are_settings(option, says, refused):
    for words in ((option, "1"), (f"{option}=1",)):
        refused("train", "--data", "digits", *words, says=[f"Did you mean {says}"])


MEANT = {
    "workers": ("--set workers", None, "train --set workers"),
    "img-size": ("--resolution", "--resolutions", "--resolution"),
    "pretrained": ("--init-from", "--model", "--model"),
    "checkpoint": ("--init-from", "--model", "--model"),
    "ema_decay": ("--set optimizer.ema", "train --set optimizer.ema", "train --set optimizer.ema"),
    "optimizer.ema_decay": ("--set optimizer.ema", "train --set optimizer.ema", "train --set optimizer.ema"),
    "batch_size": ("--set batch_size", "train --set batch_size", "train --set batch_size"),
    "bs": ("--set batch_size", "train --set batch_size", "train --set batch_size"),
    "learning-rate": ("--set optimizer.lr", "train --set optimizer.lr", "train --set optimizer.lr"),
    "weight-decay": ("--set optimizer.weight_decay",) + ("train --set optimizer.weight_decay",) * 2,
    "wd": ("--set optimizer.weight_decay",) + ("train --set optimizer.weight_decay",) * 2,
}


@pytest.mark.parametrize("option", MEANT)
def test_names_of_other_programs(option, refused):
    for command, wanted in zip((train, evaluate, predict), MEANT[option], strict=True):
        if wanted is None:
            continue
        said = refused(command.__name__, "x", f"--{option}", "1", says=[wanted])
        [hint] = re.findall(r"[Dd]id you mean '?(?:sightline )?([^?'=]+?)(?:=\.\.\.)?'?\?", said)
        assert hint == wanted
        *by, name = hint.split()
        owner = OptimizerConfig if name.startswith("optimizer.") else TrainConfig
        taken = {one.name for one in fields(owner)} if "--set" in by else option_names(command)
        assert name.removeprefix("optimizer.").removeprefix("--").replace("-", "_") in taken


def test_synonyms_are_of_names_that_there_are():
    settings = {one.name for kind in (TrainConfig, OptimizerConfig) for one in fields(kind)}
    options = {name for one in (train, evaluate, predict) for name in option_names(one)}
    assert _SYNONYMS.keys() <= settings | options


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        ("ema_decay", "optimizer.ema"),
        ("optimizer.ema_decay", "ema"),
        ("wd", "optimizer.weight_decay"),
        ("bs", "batch_size"),
        ("learning-rate", "optimizer.lr"),
        ("img_size", "resolution"),
        ("pretrained", "init_from"),
        ("lr", "optimizer.lr"),
        ("encodng", "encoding"),
    ],
)
def test_settings_of_other_programs(key, asked, refused):
    refused("train", "--data", "digits", "--set", f"{key}=1", says=[f"did you mean '{asked}'?"])


def test_all_members_of_a_family_are_said():
    [first, *_] = names = near("ema", ["ema_a", "ema_b"])
    assert (first, names) == ("ema_a", ["ema_a", "ema_b"])
    assert meant("--no", ["--no-shrink", "--no-pretrained"]) == "--no-shrink or --no-pretrained"


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
        assert isinstance(open_source(f"{kind}:{made}"), FileSource)


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


def test_mirrored_images_are_warned_of_once_the_run_begins(cli, tmp_path):
    data = pictures(tmp_path / "data", ("arrow_left", "arrow_right"), 2)
    words = ["train", "--data", data, "--resolution", "8", "--threads", "1", "--model", "vit_micro_patch4"]
    words += ["--images", "4", "--out", tmp_path / "run"]
    for more in (["--dry-run"], []):
        code, _, err = cli(*words, *more)
        assert (code, err.count("flip=0")) == (0, 1), err
    code, _, err = cli(*words, "--seed", "1", "--resume")
    assert (code, err.count("flip=0")) == (2, 0), err
