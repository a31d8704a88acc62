"""More checkpoints than the last: which stay, which one a continuation takes, and what is nobody's to delete."""

from __future__ import annotations

import dataclasses
import os
import shutil

import pytest
import torch

from sightline.hub.load import load_model, read_config_record
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.run_files import checkpoints, step_folder
from tests.tiny import ENDLESS, INPUTS, MODEL, Stopped, flip_a_byte, log_lines, stop_at, train, weights

# Six steps, each of which is saved.
THREE = dataclasses.replace(ENDLESS, checkpoint_every=16, keep_last=3)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "a"
    train(THREE, out)
    return out


def steps(out):
    """The steps of the checkpoints that are there, each of them whole."""
    return {read_config_record(place)["training"]["step"] for place in checkpoints(out) if verify_checkpoint(place)}


def test_the_last_three_stay(undisturbed):
    assert steps(undisturbed) == {4, 5, 6}
    assert os.readlink(undisturbed / "checkpoint") == "checkpoints/step-00000006"
    models = [load_model(place) for place in checkpoints(undisturbed)]
    assert not torch.equal(models[0].head.weight, models[1].head.weight)


def test_a_continuation_takes_the_newest_whole_one_and_says_what_it_passed_over(undisturbed, tmp_path):
    out = shutil.copytree(undisturbed, tmp_path / "a", symlinks=True)
    flip_a_byte(out / "checkpoint" / "model.safetensors")
    (step_folder(out, 5) / "log.jsonl").unlink()
    warned = []
    train(THREE, out, resume=True, warn=warned.append)
    assert [str(step_folder(out, step)) in warned[0] for step in (6, 5, 4)] == [True] * 3
    assert warned[0].endswith(str(step_folder(out, 4)))
    assert (weights(out), log_lines(out)) == (weights(undisturbed), log_lines(undisturbed))
    assert steps(out) == {4, 5, 6}


def test_what_no_run_wrote_is_never_deleted(undisturbed, tmp_path):
    """Under names that no step has; a link to another run's checkpoint is not followed."""
    out = tmp_path / "a" / "checkpoints"
    with pytest.raises(Stopped):
        train(THREE, tmp_path / "a", observe=stop_at(2))
    (out / "step-1").mkdir()
    (out / "step-00000001-keep").mkdir()
    (out / "step-00000001-keep" / "thesis.tex").write_text("years of work")
    (out / "notes.txt").write_text("a file")
    (out / "step-00000000").symlink_to(step_folder(undisturbed, 4))
    train(THREE, tmp_path / "a", resume=True)
    assert {place.name for place in out.iterdir()} - {step_folder(out, step).name for step in (4, 5, 6)} == {
        "step-1", "step-00000001-keep", "notes.txt", "step-00000000",
    }  # fmt: skip
    assert (out / "step-00000001-keep" / "thesis.tex").exists()
    assert load_model(step_folder(undisturbed, 4))


def test_commands_take_an_older_one(cli, refused, tmp_path):
    out = tmp_path / "a"
    words = ["--data", "digits", "--threads", 1, "--images", 64, "--keep_last=2", "--checkpoint_every=32"]
    words += [f"--model_options.{key}={value}" for key, value in MODEL.items()]
    assert cli("train", *words, "--out", out)[0] == 0
    place = step_folder(out, 1)
    code, said, err = cli("predict", place, INPUTS / "good.jpg")
    assert (code, bool(said)) == (0, True), err
    assert cli("evaluate", place, "--images", 5, "--out", tmp_path / "rows")[0] == 0
    refused("evaluate", place, "--images", 5, says=[str(out)])
    refused("train", *words, "--out", place, "--overwrite", says=[str(out)])
    assert cli("train", *words, "--out", out, "--overwrite")[0] == 0
    (place / "thesis.tex").write_text("years of work")
    refused("train", *words, "--out", out, "--overwrite", says=["thesis.tex"])
