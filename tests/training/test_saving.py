"""A run is written while its steps go on: what it was at its step, in order, and what the writing fails by ends it."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from sightline.errors import StoppedError, StorageError
from sightline.hub.load import read_config_record
from sightline.io import checkpoint
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.run_files import checkpoints, step_folder
from sightline.training import checkpointer, loop
from sightline.training.checkpointer import Checkpointer
from tests.tiny import ENDLESS, MODEL, Stopped, digest, log_lines, train

# Six steps, of which two, four and six are saved.
TINY = ["--data", "digits", "--threads", "1", "--images", "96", "--precision=float32"]
TINY += ["--batch_size=16", "--checkpoint_every=32", "--validation=null"]
TINY += [f"--model_options.{key}={value}" for key, value in MODEL.items()]


class Held:
    """What writes a checkpoint, and waits for a word before it does.

    Attributes:
        begun: it was called; go: the word.
    """

    def __init__(self):
        self.begun, self.go, self._real = threading.Event(), threading.Event(), checkpointer.write_checkpoint

    def __call__(self, *arguments, **options):
        self.begun.set()
        assert self.go.wait(60)
        self._real(*arguments, **options)


@pytest.fixture
def held(monkeypatch):
    writer = Held()
    monkeypatch.setattr(checkpointer, "write_checkpoint", writer)
    yield writer
    writer.go.set()


def content(folder):
    """The files of a checkpoint; how long it took is another time's."""
    files = {name: digest(file) for name, file in verify_checkpoint(folder).items()}
    record = json.loads((folder / "config.json").read_text())
    del files["config.json"]
    del record["training"]["seconds"]
    return files, record


def test_a_checkpoint_is_what_the_run_was_at_its_step(held, tmp_path):
    """Weights, their mean, moments and records of step 2, written when step 3 has changed them all."""

    def observe(at):
        if at.step == 3:
            assert held.begun.is_set()
            assert not (tmp_path / "a" / "checkpoint").exists()
            held.go.set()
            raise Stopped

    with pytest.raises(Stopped):
        train(ENDLESS, tmp_path / "a", observe=observe)
    steps = iter(range(1, 9))
    with pytest.raises(StoppedError):
        train(ENDLESS, tmp_path / "b", stop=lambda: next(steps) == 2)
    assert content(tmp_path / "a" / "checkpoint") == content(tmp_path / "b" / "checkpoint")
    assert len(log_lines(tmp_path / "a")) == 2


def test_a_disk_that_is_full_ends_the_run_after_the_next_step_with_5(refused, monkeypatch, tmp_path):
    real_flush, real_step, saver, taken = checkpoint.fsync, loop.train_step, [], []

    def flush(path):
        if (tmp_path / "a" / "checkpoint").exists():
            raise OSError(28, "No space left on device")
        real_flush(path)

    def step(state, *arguments):
        taken.append(state.step)
        if state.step == 4:
            assert saver[0]._saved.exception(60)
        return real_step(state, *arguments)

    class Seen(Checkpointer):
        def __enter__(self):
            saver.append(self)
            return self

    monkeypatch.setattr(checkpoint, "fsync", flush)
    monkeypatch.setattr(loop, "train_step", step)
    monkeypatch.setattr(loop, "Checkpointer", Seen)
    says = [f"{step_folder(tmp_path / 'a', 4)}: cannot be written (No space left on device)"]
    refused("train", *TINY, "--encoding", "none", "--out", tmp_path / "a", code=5, says=says)
    assert read_config_record(tmp_path / "a" / "checkpoint")["training"]["step"] == 2
    verify_checkpoint(tmp_path / "a" / "checkpoint")
    assert taken == [0, 1, 2, 3, 4]
    assert len(log_lines(tmp_path / "a")) == 2
    assert [place.name for place in (tmp_path / "a" / "checkpoints").iterdir()] == ["step-00000002"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_while_a_save_is_under_way(fails, held, cli, monkeypatch, tmp_path):
    """The save is done first, then that of the last step; where it fails, that is what the run ends by."""
    real = loop.train_step

    def step(state, *arguments):
        found = real(state, *arguments)
        if state.step == 2:
            # In the third step, while the second one is being written.
            assert held.begun.wait(60)
            os.kill(os.getpid(), signal.SIGTERM)
            if fails:
                monkeypatch.setattr(held, "_real", full)
            held.go.set()
        return found

    def full(place, *_, **__):
        raise StorageError(f"{place}: cannot be written")

    monkeypatch.setattr(loop, "train_step", step)
    code, _, err = cli("train", *TINY, "--out", tmp_path / "a")
    if fails:
        assert code == 5
        assert f"error: {step_folder(tmp_path / 'a', 2)}: " in err.splitlines()[-1]
        assert not checkpoints(tmp_path / "a")
        return
    assert code == 143
    assert checkpoints(tmp_path / "a") == [step_folder(tmp_path / "a", step) for step in (3, 2)]
