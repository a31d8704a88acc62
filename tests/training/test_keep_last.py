"""More checkpoints than the last: which stay, which one a continuation takes, and what is nobody's to delete."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import torch

from sightline.errors import InputError
from sightline.hub.load import load_model, read_config_record
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.run_files import older_checkpoint_name
from sightline.training import saving, train
from sightline.training.checkpoints import last_whole
from sightline.training.config import TrainConfig
from tests.tiny import ENDLESS, INPUTS, MODEL, Stopped, flip_a_byte, log_lines, stop_at, tree, weights

# Six steps, each of which is saved.
THREE = dataclasses.replace(ENDLESS, checkpoint_every=16, keep_last=3)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "a"
    train(THREE, out)
    return out


def steps(out):
    """The steps of the checkpoints that are there, each of them whole, by the names of their folders."""
    found = sorted(place for place in out.glob("checkpoint*") if place.is_dir() and not place.is_symlink())
    return {place.name: read_config_record(place)["training"]["step"] for place in found if verify_checkpoint(place)}


def test_the_last_three_stay_under_the_names_of_their_steps(undisturbed):
    assert steps(undisturbed) == {"checkpoint": 6, "checkpoint.step-00000004": 4, "checkpoint.step-00000005": 5}
    models = [load_model(undisturbed / name) for name in steps(undisturbed)]
    assert not torch.equal(models[0].head.weight, models[1].head.weight)


def test_no_more_than_the_last_unless_asked(undisturbed, tmp_path):
    assert TrainConfig().keep_last == 1
    seen = []

    def observe(at):
        # The last save alone is sure to be done.
        if at.step == 6:
            seen.append(steps(tmp_path / "a"))

    train(dataclasses.replace(THREE, keep_last=1, checkpoint_every=32), tmp_path / "a", observe=observe)
    assert steps(tmp_path / "a") == {"checkpoint": 6}
    assert seen == [{"checkpoint": 6, "checkpoint.previous": 4}]
    assert weights(tmp_path / "a") == weights(undisturbed)


def test_it_may_change_between_a_run_and_its_continuation(undisturbed, tmp_path):
    out, names = tmp_path / "a", [older_checkpoint_name(step) for step in range(7)]
    for keep_last, step, expected in (
        (1, 2, {"checkpoint": 2, "checkpoint.previous": 1}),
        (4, 4, {"checkpoint": 4, names[1]: 1, names[2]: 2, names[3]: 3}),
        (2, 5, {"checkpoint": 5, names[4]: 4}),
    ):
        with pytest.raises(Stopped):
            train(dataclasses.replace(THREE, keep_last=keep_last), out, resume=True, observe=stop_at(step))
        assert steps(out) == expected
    train(dataclasses.replace(THREE, keep_last=1), out, resume=True)
    assert steps(out) == {"checkpoint": 6}
    assert weights(out) == weights(undisturbed)


def test_a_continuation_takes_the_newest_whole_one_and_says_what_it_passed_over(undisturbed, tmp_path):
    out = shutil.copytree(undisturbed, tmp_path / "a")
    flip_a_byte(out / "checkpoint" / "model.safetensors")
    (out / older_checkpoint_name(5) / "log.jsonl").unlink()
    warned = []
    train(THREE, out, resume=True, warn=warned.append)
    assert "checkpoint/model.safetensors: differs from its checksum" in warned[0]
    assert f"; and {out / older_checkpoint_name(5)}/log.jsonl: is missing from the checkpoint; " in warned[0]
    assert warned[0].endswith(f"going on from {out / older_checkpoint_name(4)}")
    assert (weights(out), log_lines(out)) == (weights(undisturbed), log_lines(undisturbed))
    # Those that are damaged and of this step or a later one are gone; nothing damaged becomes an older one.
    assert steps(out) == {"checkpoint": 6, older_checkpoint_name(4): 4, older_checkpoint_name(5): 5}


def test_where_all_are_damaged_each_is_named(undisturbed, tmp_path):
    out = shutil.copytree(undisturbed, tmp_path / "a")
    for name in steps(out):
        flip_a_byte(out / name / "model.safetensors")
    before = tree(out)
    with pytest.raises(
        InputError, match=rf"checkpoint/model.*; and .*{older_checkpoint_name(5)}/.*; and .*{older_checkpoint_name(4)}/"
    ):
        train(THREE, out, resume=True)
    assert tree(out) == before
    shutil.rmtree(out / "checkpoint")
    shutil.rmtree(out / older_checkpoint_name(5))
    shutil.copytree(undisturbed / older_checkpoint_name(4), out / older_checkpoint_name(5))
    assert last_whole(out, print) == out / older_checkpoint_name(5)


def test_the_oldest_goes_when_the_newer_one_stands(undisturbed, monkeypatch, tmp_path):
    real, seen = saving.write_asked_checkpoint, []

    def write(files, place):
        seen.append(set(steps(tmp_path / "a").values()) if place.exists() else set())
        real(files, place)

    monkeypatch.setattr(saving, "write_asked_checkpoint", write)
    train(THREE, tmp_path / "a")
    assert seen == [set(), {1}, {1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}]


def test_what_no_run_wrote_is_never_deleted(undisturbed, tmp_path):
    out, names = tmp_path / "a", [older_checkpoint_name(step) for step in range(1, 6)]
    (out / names[0]).mkdir(parents=True)
    (out / names[0] / "thesis.tex").write_text("years of work")
    shutil.copytree(undisturbed / names[3], out / names[1])
    (out / names[1] / "thesis.tex").write_text("years of work")
    (out / names[2]).symlink_to(undisturbed / names[3])
    (out / "checkpoint.step-1").mkdir()
    (out / names[3]).write_text("a file")
    before = {name: place for name, place in tree(out).items() if name.startswith("checkpoint.step-")}
    train(THREE, out)
    after = {name: place for name, place in tree(out).items() if name.startswith("checkpoint.step-")}
    assert {name: after[name] for name in before} == before
    assert {name for name in after if name.startswith(names[4])}
    assert load_model(undisturbed / names[3])


def test_commands_take_an_older_one(cli, refused, tmp_path):
    out = tmp_path / "a"
    words = ["--data", "digits", "--threads", 1, "--images", 64, "--set", "keep_last=2", "--set", "checkpoint_every=32"]
    words += [word for key, value in MODEL.items() for word in ("--set", f"model_options.{key}={value}")]
    assert cli("train", *words, "--out", out)[0] == 0
    place = out / older_checkpoint_name(1)
    code, said, err = cli("predict", place, INPUTS / "good.jpg")
    assert (code, bool(said)) == (0, True), err
    assert cli("evaluate", place, "--images", 5, "--out", tmp_path / "rows.jsonl")[0] == 0
    refused("evaluate", place, "--images", 5, says=[f"is not the checkpoint that the rows of {out} are of"])
    refused("train", *words, "--out", place, "--overwrite", says=[f"{place.name} belongs to the run {out}"])
    assert cli("train", *words, "--out", out, "--overwrite")[0] == 0
    (place / "thesis.tex").write_text("years of work")
    refused("train", *words, "--out", out, "--overwrite", says=["thesis.tex was written by no run"])
