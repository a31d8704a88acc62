"""Folders of dense runs: rows and pictures that were changed, lost, locked or half written."""

from __future__ import annotations

import os
import shutil
import signal
import threading

import pytest

from sightline.cli.app import main
from sightline.errors import StorageError
from sightline.evaluation import drawn
from sightline.evaluation import measure as measuring
from sightline.results.rows import read_rows

SMALL = ["--set", "model_options={depth: 1, dim: 48, heads: 4}", "--set", "validation=null", "--threads", "1"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of a run of two steps, measured with pictures; to be copied."""
    out = tmp_path_factory.mktemp("dense_runs") / "seg"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measuring, "default_image_count", lambda source: 12)
        assert main(["train", "--recipe", "segment_scenes", "--images", "64", *SMALL, "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(kept, tmp_path):
    return shutil.copytree(kept, tmp_path / "seg", symlinks=True)


def picture_of(run):
    return run / next(row.picture for row in read_rows(run / "results.jsonl") if row.picture)


@pytest.mark.parametrize("locked", ["", "pictures"])
def test_what_cannot_be_written_is_said_before_an_image_is_measured(locked, run, refused, monkeypatch):
    # Whoever runs the tests may be allowed everything.
    place = os.path.realpath(run / locked)
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: os.path.realpath(path) != place and allowed(path, mode))
    monkeypatch.setattr("sightline.evaluation.evaluate", lambda *_, **__: pytest.fail("measured"))
    refused("evaluate", run, "--images", 4, "--resolutions", 32, code=5, says=[str(run)])


def test_a_picture_that_finds_no_room_costs_no_row(run, cli, monkeypatch):
    def full(path, content):
        raise StorageError(f"{path}: cannot be written (No space left on device)")

    monkeypatch.setattr(drawn, "write_out", full)
    code, _, err = cli("evaluate", run, "--images", 20, "--resolutions", 40, "--threads", 1)
    assert code == 5
    assert "No space" in err
    assert {row.resolution for row in read_rows(run / "results.jsonl")} == {32, 40}


def test_fewer_images_replace_neither_rows_nor_their_picture(run, cli):
    before, rows = picture_of(run).read_bytes(), (run / "results.jsonl").read_text()
    words = ["evaluate", run, "--resolutions", 32, "--images", 1, "--threads", 1]
    assert cli(*words)[0] == 0
    assert picture_of(run).read_bytes() == before
    assert (run / "results.jsonl").read_text() == rows
    assert cli(*words, "--overwrite")[0] == 0
    assert picture_of(run).read_bytes() != before


def test_a_signal_in_the_last_step_ends_before_the_test(cli, monkeypatch, tmp_path):
    from sightline.training import loop

    real = loop.train_step

    def step(*arguments):
        if arguments[-1].last:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    assert threading.current_thread() is threading.main_thread()
    monkeypatch.setattr(loop, "train_step", step)
    monkeypatch.setattr(measuring, "evaluate", lambda *_, **__: pytest.fail("tested"))
    words = ["train", "--recipe", "segment_scenes", "--images", "64", *SMALL, "--out", tmp_path / "a"]
    code, _, err = cli(*words)
    assert code == 143
    assert "--resume" in err
    monkeypatch.undo()
    monkeypatch.setattr(measuring, "default_image_count", lambda source: 12)
    code, _, err = cli("train", "--config", tmp_path / "a" / "config.yaml", "--out", tmp_path / "a", "--resume")
    assert code == 0, err
    assert (tmp_path / "a" / "results.jsonl").exists()
