"""Folders of dense runs: rows and pictures that were changed, lost, locked or half written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading

import pytest
from PIL import Image

from sightline.cli.app import main
from sightline.evaluation import measure as measuring
from sightline.results.rows import read_rows

pytestmark = pytest.mark.slow

SMALL = ["--model_options={depth: 1, dim: 48, heads: 4}", "--validation=null", "--threads", "1"]


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


def change(run, edit):
    """The rows of a run, each changed by `edit(row)`."""
    rows = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    for row in rows:
        edit(row)
    (run / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def picture_of(run):
    return run / next(row.picture for row in read_rows(run / "results.jsonl") if row.picture)


def test_a_head_of_another_task_is_refused(run, refused, reseal_config, tmp_path):
    reseal_config(run, lambda config: config["architecture"].update(task="classification"))
    photo = tmp_path / "photo.png"
    Image.new("RGB", (40, 30)).save(photo)
    says = ["task classification", "head pix", "linear or mlp"]
    refused("predict", run, photo, says=says)
    refused("evaluate", run, "--images", 4, says=says)


@pytest.fixture
def reseal_config():
    from tests.tiny import reseal

    def edit(run, change):
        path = run / "checkpoint" / "config.json"
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(record))
        reseal(run / "checkpoint")

    return edit


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
