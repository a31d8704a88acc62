"""Where a run is, from its files alone."""

from __future__ import annotations

import json
import os

import pytest

from sightline.cli.sweep_table import status_rows
from sightline.io.run_lock import LOCK, RunLock
from sightline.training import TrainProgress, progress
from sightline.training.progress import Pace, ProgressFile
from sightline.training.status import describe_unfinished, run_status
from tests.tiny import Stopped, stop_at, tiny_config, train, tree, wait_for_saves

CONFIG = tiny_config(images=96, batch_size=16, checkpoint_every=32)


def test_a_finished_run(run_copy):
    before = tree(run_copy)
    at = run_status(run_copy)
    assert (at.run, at.state, at.step, at.steps, at.images, at.total) == ("tiny", "finished", 2, 2, 64, 64)
    last = json.loads((run_copy / "log.jsonl").read_text().splitlines()[-1])
    assert (at.loss, at.lr) == (last["loss"], last["lr"])
    assert at.validated is not None
    assert (at.validated.metric, at.validated_at, at.checkpoint_step) == ("top1", 64, 2)
    assert 0 <= at.checkpoint_age < 10_000
    assert (at.owner, at.left, at.images_per_second) == (None, None, None)
    assert tree(run_copy) == before
    assert describe_unfinished(run_copy) == ""
    json.dumps(at.as_record())


def test_a_run_that_is_at_work_and_one_that_stopped(tmp_path, monkeypatch):
    # However slow this machine is, it is written after the first step alone.
    monkeypatch.setattr(progress.time, "monotonic", lambda: 100.0)
    wait_for_saves(monkeypatch)
    seen = []

    def look(at):
        seen.append(run_status(tmp_path / "a"))
        stop_at(4)(at)

    with pytest.raises(Stopped):
        train(CONFIG, tmp_path / "a", observe=look)
    assert [at.state for at in seen] == ["training"] * 4
    # What it wrote last: its progress at once, later its checkpoints.
    assert [at.step for at in seen] == [1, 2, 2, 4]
    assert {(at.steps, at.total) for at in seen} == {(6, 96)}
    assert [at.checkpoint_step for at in seen] == [None, 2, 2, 4]
    assert all(at.owner is not None and at.owner.startswith(f"process {os.getpid()} on ") for at in seen)
    at = run_status(tmp_path / "a")
    assert (at.state, at.step, at.steps, at.images, at.total) == ("stopped", 4, 6, 64, 96)
    assert "64 of 96" in describe_unfinished(tmp_path / "a")
    # Neither a checkpoint nor a folder beside it is a run.
    assert describe_unfinished(tmp_path / "a" / "checkpoint") == describe_unfinished(tmp_path) == ""


def test_progress_says_the_speed_and_the_end(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    note = ProgressFile(tmp_path)
    for step in range(1, 101):
        pace = Pace(float(step), 100.0 * step, 0.25, 2**20)
        note.write(TrainProgress(step, 200, 20 * step, 4000, 1, 1, 1.0, 1.0, 0.1, pace))
        now[0] += 1.0
    found = json.loads((tmp_path / "progress.json").read_text())
    # Every five seconds: at the steps 1, 6, ..., 96.
    assert (found["step"], found["images"]) == (96, 1920)
    assert (found["images_per_second"], found["tokens_per_second"]) == (96, 9600)
    with RunLock(tmp_path):
        at = run_status(tmp_path)
    assert at.state == "training"
    assert at.left == pytest.approx((4000 - 1920) / 96)
    assert (at.tokens_per_second, at.peak_share, at.memory) == (9600, 0.25, 2**20)
    assert {"a second", "of its peak", "memory"} <= dict(status_rows(at)).keys()
    (tmp_path / "config.yaml").write_text("")
    gone = run_status(tmp_path)
    assert (gone.state, gone.images_per_second, gone.peak_share) == ("stopped", None, None)


def test_one_that_was_killed_has_stopped(tmp_path):
    with pytest.raises(Stopped):
        train(CONFIG, tmp_path / "a", observe=stop_at(2))
    for said in ("", json.dumps({"process": os.getpid(), "host": "here", "since": "now"})):
        (tmp_path / "a" / LOCK).write_text(said)
        before = tree(tmp_path)
        at = run_status(tmp_path / "a")
        assert (at.state, at.step, at.owner) == ("stopped", 2, None)
        with RunLock(tmp_path / "a"):
            assert run_status(tmp_path / "a").state == "training"
        (tmp_path / "a" / LOCK).write_text(said)
        assert tree(tmp_path) == before
