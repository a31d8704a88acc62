"""Weights that are damaged, of another model, or no weights: refused by name, no guess, and no code of theirs run."""

from __future__ import annotations

import os
import pickle
import shutil

import pytest
import torch

from tests.tiny import INPUTS, TRAINING, reseal, tree

FLIPS = [0, 8, 60, -1]


class Bomb:
    """Loading it makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


@pytest.fixture
def refuses(refused, run_copy, tmp_path):
    """Every command that reads a model refuses it with these words, and changes nothing."""

    def check(*says, run=run_copy):
        before = tree(tmp_path)
        for words in (
            ["predict", run, INPUTS / "good.jpg"],
            ["evaluate", run, "--data", "digits", "--resolutions", 16, "--images", 4],
            ["report", run, "--out", tmp_path / "page.html"],
        ):
            refused(*words, says=list(says))
        assert tree(tmp_path) == before

    return check


@pytest.fixture
def checkpoint(run_copy):
    return run_copy / "checkpoint"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "checksums.json", TRAINING])
@pytest.mark.parametrize("place", FLIPS)
def test_one_flipped_bit(name, place, refuses, checkpoint):
    file = checkpoint / name
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)
    # In the table of checksums a digit of a file's size may be hit: then that file is named.
    refuses(*([] if name == "checksums.json" else [name]))


@pytest.mark.parametrize("kept", [0, 100, -1])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "checksums.json"])
def test_truncated(name, kept, refuses, checkpoint):
    file = checkpoint / name
    file.write_bytes(file.read_bytes()[:kept])
    refuses(name, "truncated")


@pytest.mark.parametrize(
    "name", ["huge_header.safetensors", "shape_mismatch.safetensors", "truncated.safetensors", "bitflip.safetensors"]
)
def test_damaged_weights_with_checksums_that_fit(name, refuses, checkpoint):
    """Somebody made the folder so; then the file itself gives it away."""
    shutil.copy(INPUTS / name, checkpoint / "model.safetensors")
    reseal(checkpoint)
    refuses("model.safetensors")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_options": {"depth": 2}}, ["depth 2", "holds 1 blocks"]),
        ({"encoding": "learned_1d"}, ["missing: encoding.table [16, 48]"]),
        ({"data": "scenes"}, ["head.weight is [10, 48], expected [24, 48]"]),
    ],
)
def test_the_configuration_of_another_run(change, says, cli, refuses, checkpoint, tmp_path):
    """Whole files, each good in itself, that do not belong together; both shapes are named."""
    from tests.tiny import MODEL

    options = {**MODEL, **change.pop("model_options", {})}
    words = [f"--model_options.{key}={value}" for key, value in options.items()]
    words += [f"--{key}={value}" for key, value in change.items()]
    base = [] if "data" in change else ["--data", "digits"]
    code, _, err = cli(
        "train", *base, *words, "--images", 32, "--resolution", 16, "--threads", 1, "--out", tmp_path / "other"
    )
    assert code == 0, err
    shutil.copy(tmp_path / "other" / "checkpoint" / "config.json", checkpoint / "config.json")
    refuses("config.json")
    reseal(checkpoint)
    refuses("model.safetensors", *says)


@pytest.mark.parametrize("name", ["bomb.pt", "bomb.bin", "bomb.pkl", "bomb.safetensors"])
@pytest.mark.parametrize("kind", ["torch", "pickle"])
def test_a_pickle_is_never_run(name, kind, refuses, refused, run_copy, checkpoint, tmp_path):
    marker = tmp_path / "marker"
    (tmp_path / "weights").mkdir()
    file = tmp_path / "weights" / name
    if kind == "torch":
        torch.save({"head.weight": torch.zeros(10, 48), "more": Bomb(marker)}, file)
    else:
        file.write_bytes(pickle.dumps(Bomb(marker)))
    # As the model, as a file of one, and as what a run goes on from.
    refuses(name, run=file)
    refuses("weights", run=tmp_path / "weights")
    for inside in ("model.safetensors", "config.json", "checksums.json"):
        kept = (checkpoint / inside).read_bytes()
        shutil.copy(file, checkpoint / inside)
        refuses(inside)
        if inside != "checksums.json":
            reseal(checkpoint)
            refuses(inside)
        (checkpoint / inside).write_bytes(kept)
        reseal(checkpoint)
    shutil.copy(file, checkpoint / TRAINING)
    reseal(checkpoint)
    config = ["--config", run_copy / "config.yaml", "--threads", 1, "--out", run_copy, "--resume"]
    refused("train", *config, says=["training"])
    refused("train", "--config", file, "--out", tmp_path / "new", says=[name])
    refused("evaluate", run_copy, "--data", f"imagefolder:{file}", says=[name])
    assert not marker.exists()
    assert not (tmp_path / "new").exists()
    # The bomb is a real one.
    if kind == "pickle":
        pickle.loads(file.read_bytes())
        assert marker.exists()
