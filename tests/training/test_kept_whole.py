"""What is known to be whole stays until another whole one stands: checkpoints, the one before, and the log in them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil

import pytest

from sightline.errors import InputError, StorageError
from sightline.hub.load import load_model, read_config_record
from sightline.io import checkpoint
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.run_files import step_folder
from sightline.io.run_lock import LOCK, RunLock
from sightline.training.checkpointer import last_whole
from sightline.training.config import ValidationConfig
from sightline.training.log import read_log
from tests.tiny import (
    ENDLESS,
    EVENTFUL,
    Stopped,
    after,
    digest,
    flip_a_byte,
    killed,
    log_lines,
    stop_at,
    train,
    tree,
    wait_for_saves,
    weights,
)


@pytest.mark.parametrize("log", [None, "{bad"])
def test_a_log_that_is_gone_or_damaged_is_written_anew_from_the_checkpoint(log, undisturbed, tmp_path):
    with pytest.raises(Stopped):
        train(ENDLESS, tmp_path / "a", observe=stop_at(5))
    file = tmp_path / "a" / "log.jsonl"
    file.unlink()
    if log is not None:
        file.write_text(log)
    warnings = []
    train(ENDLESS, tmp_path / "a", resume=True, warn=warnings.append)
    assert (weights(tmp_path / "a"), log_lines(tmp_path / "a")) == undisturbed(ENDLESS)
    (line,) = warnings
    assert f"{file}: was {'missing' if log is None else 'not as the run had written it'}; its 4 lines" in line
    # Of a run that is complete, too.
    file.write_text("")
    train(ENDLESS, tmp_path / "a", resume=True)
    assert log_lines(tmp_path / "a") == undisturbed(ENDLESS)[1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            '{"step": 2, "images": 64, "loss": "low"}',
            "cannot be read as the log of a run (loss 'low', expected a number)",
        ),
        (
            '{"step": "2", "images": 64, "loss": 1.0}',
            "cannot be read as the log of a run (step '2', expected a number)",
        ),
        (
            '{"step": 2, "images": null, "loss": 1.0}',
            "cannot be read as the log of a run (images None, expected a number)",
        ),
        ('{"step": 2, "images": 64, "loss": NaN}', "not JSON (NaN is no finite number), expected a record of a step"),
        ('{"step": 2, "images": 64}', "cannot be read as the log of a run (it is no record of a step)"),
    ],
)
def test_a_log_line_with_a_text_where_a_number_belongs_is_named(line, says, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "images": 32, "loss": 2.0}\n' + line + "\n")
    with pytest.raises(InputError) as error:
        read_log(tmp_path / "log.jsonl")
    assert str(error.value) == f"{tmp_path / 'log.jsonl'}:2: {says}"


def resume_and_fail_to_save(out):
    """A disk that is full, then death between the two renames of a save that works."""
    writer, left = checkpoint.save_tensors, [1]

    def full(*arguments):
        if left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        writer(*arguments)

    checkpoint.save_tensors = full
    with contextlib.suppress(StorageError):
        train(ENDLESS, out, resume=True)
    checkpoint.os.replace = after(2, checkpoint.os.replace)
    train(ENDLESS, out, resume=True)


def test_a_damaged_checkpoint_never_takes_the_place_of_a_good_one(undisturbed, tmp_path):
    out = tmp_path / "a"
    with pytest.raises(Stopped):
        train(ENDLESS, out, observe=stop_at(5))
    flip_a_byte(out / "checkpoint" / "model.safetensors")
    spare = digest(step_folder(out, 2) / "model.safetensors")
    killed(resume_and_fail_to_save, out)
    assert digest(step_folder(out, 2) / "model.safetensors") == spare
    verify_checkpoint(step_folder(out, 2))
    train(ENDLESS, out, resume=True)
    assert (weights(out), log_lines(out)) == undisturbed(ENDLESS)
    assert [place.name for place in (out / "checkpoints").iterdir()] == ["step-00000006"]


def test_one_that_is_damaged_in_mid_run_does_not_either(undisturbed, monkeypatch, tmp_path):
    wait_for_saves(monkeypatch)
    out = tmp_path / "a"

    def damage(at):
        if at.step == 5:
            flip_a_byte(out / "checkpoint" / "model.safetensors")
            assert last_whole(out) == step_folder(out, 2)
        if at.step == 6:
            raise Stopped

    with pytest.raises(Stopped):
        train(ENDLESS, out, observe=damage)
    assert last_whole(out) == step_folder(out, 6)
    train(ENDLESS, out, resume=True)
    assert (weights(out), log_lines(out)) == undisturbed(ENDLESS)


def test_the_previous_one_goes_only_when_the_last_is_whole(tmp_path):
    out = tmp_path / "a"
    with pytest.raises(Stopped):
        train(ENDLESS, out, observe=stop_at(5))
    flip_a_byte(step_folder(out, 4) / "model.safetensors")
    with pytest.raises(Stopped):
        train(ENDLESS, out, resume=True, observe=stop_at(3))
    assert last_whole(out) == step_folder(out, 2)
    assert read_config_record(out / "checkpoint")["training"]["step"] == 2
    flip_a_byte(step_folder(out, 2) / "model.safetensors")
    with pytest.raises(InputError, match=r"step-00000004/model.*differs.*; and .*step-00000002/model.*differs"):
        train(ENDLESS, out, resume=True)


def test_no_links_are_needed(undisturbed, tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", no_links)
    monkeypatch.setattr(os, "link", no_links)
    out = tmp_path / "a"
    with pytest.raises(Stopped):
        train(ENDLESS, out, observe=stop_at(5))
    assert read_config_record(out)["training"]["step"] == 4
    train(ENDLESS, out, resume=True)
    assert (digest(step_folder(out, 6) / "model.safetensors"), log_lines(out)) == undisturbed(ENDLESS)
    assert load_model(out)
    assert not os.path.lexists(out / "checkpoint")


def test_what_was_measured_of_earlier_weights_goes_with_them(tmp_path):
    """Else a run that is killed before its last test keeps rows of half-trained weights as its own."""
    out = tmp_path / "a"
    with pytest.raises(Stopped):
        train(ENDLESS, out, observe=stop_at(5))
    for name in ("results.jsonl", "predictions.csv"):
        (out / name).write_text("of step 5")
    train(ENDLESS, out, resume=True)
    assert not (out / "results.jsonl").exists()
    assert not (out / "predictions.csv").exists()
    (out / "results.jsonl").write_text("last")
    train(ENDLESS, out, resume=True)
    assert (out / "results.jsonl").read_text() == "last"


@pytest.mark.parametrize("left", ["log.jsonl", "checkpoint.best", "checkpoint"])
def test_a_run_whose_checkpoint_is_gone_is_not_begun_anew_without_a_word(left, cli, tmp_path):
    """As a copy without its large folders leaves it: its log and its best model would be replaced."""
    out = tmp_path / "a"
    validated = dataclasses.replace(EVENTFUL, batch_size=64, checkpoint_every=64, validation=ValidationConfig(images=4))
    with pytest.raises(Stopped):
        train(validated, out, observe=stop_at(6))
    for entry in out.iterdir():
        if entry.name != left:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    before = tree(out)
    with pytest.raises(InputError, match=f"holds {left} "):
        train(validated, out, resume=True)
    code, _, err = cli("train", "--data", "digits", "--images", 96, "--out", out, "--resume")
    assert (code, f"holds {left} " in err, tree(out)) == (2, True, before)


def test_a_folder_in_the_place_of_its_owner_is_named(tmp_path):
    (tmp_path / LOCK).mkdir()
    with pytest.raises(StorageError, match=rf"{tmp_path}: cannot be written \(Is a directory\)"):
        RunLock(tmp_path).__enter__()
