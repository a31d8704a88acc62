"""Folders of dense runs: rows and pictures that were changed, lost, locked or half written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading

import numpy as np
import pytest
from PIL import Image

from sightline.cli.app import main
from sightline.errors import StorageError
from sightline.evaluation import drawn
from sightline.evaluation import measure as measuring
from sightline.results.rows import read_rows
from sightline.runs import outputs

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


def test_a_report_of_shrunk_rows_alone(run, cli, tmp_path):
    change(run, lambda row: row.update(resolution=64, shrunk=32))
    code, _, err = cli("report", run, "--out", tmp_path / "page.html")
    assert code == 0, err
    assert (tmp_path / "page.html").is_file()


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
    assert cli("evaluate", run, "--images", 20, "--resolutions", 40, "--threads", 1)[0] == 5
    assert {row.resolution for row in read_rows(run / "results.jsonl")} == {32, 40}


def test_fewer_images_replace_neither_rows_nor_their_picture(run, cli):
    before, rows = picture_of(run).read_bytes(), (run / "results.jsonl").read_text()
    words = ["evaluate", run, "--resolutions", 32, "--images", 1, "--threads", 1]
    assert cli(*words)[0] == 0
    assert picture_of(run).read_bytes() == before
    assert (run / "results.jsonl").read_text() == rows
    assert cli(*words, "--overwrite")[0] == 0
    assert picture_of(run).read_bytes() != before


@pytest.mark.slow
def test_what_a_killed_writer_of_pictures_left_is_deleted_with_its_run(run, cli):
    (run / "pictures" / f".{picture_of(run).name}.writing-9113").write_bytes(b"half")
    (run / "pictures" / "mine.txt").write_text("mine")
    words = ["train", "--recipe", "segment_scenes", "--images", "32", *SMALL, "--out", run, "--overwrite"]
    code, _, err = cli(*words)
    assert code == 2
    assert "mine.txt" in err
    (run / "pictures" / "mine.txt").unlink()
    code, _, err = cli(*words)
    assert code == 0, err


def report(cli, run, page):
    code, _, err = cli("report", run, "--out", page)
    assert code == 0, err
    return page.read_text().count("data:image/png"), err


@pytest.mark.slow
def test_a_report_shows_no_picture_through_a_link(run, cli, tmp_path):
    shown, _ = report(cli, run, tmp_path / "a.html")
    place = picture_of(run)
    place.rename(tmp_path / "other.png")
    place.symlink_to(tmp_path / "other.png")
    assert report(cli, run, tmp_path / "b.html") == (shown - 1, "")
    place.unlink()
    (run / "pictures").rename(tmp_path / "elsewhere")
    (tmp_path / "other.png").rename(tmp_path / "elsewhere" / place.name)
    (run / "pictures").symlink_to(tmp_path / "elsewhere")
    assert report(cli, run, tmp_path / "c.html")[0] == shown - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoilt", ["bytes", pytest.param("large", marks=pytest.mark.slow), pytest.param("name", marks=pytest.mark.slow)]
)
def test_a_report_leaves_out_what_is_no_picture(spoilt, run, cli, tmp_path):
    shown, _ = report(cli, run, tmp_path / "a.html")
    place = picture_of(run)
    if spoilt == "bytes":
        place.write_bytes(b"\x89PNG and nothing else")
    elif spoilt == "large":
        Image.fromarray(np.zeros((14000, 14000), np.uint8)).save(place)
    else:
        change(run, lambda row: row.get("picture") and row.update(picture="pictures/" + "x" * 400 + ".png"))
    found, err = report(cli, run, tmp_path / "b.html")
    assert found == shown - 1
    assert err.count("\n") == 1
    assert "--max-pixels" not in err


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


def test_a_place_is_asked_whether_it_can_be_written(tmp_path, monkeypatch):
    new = tmp_path / "new" / "folder" / "rows.jsonl"
    outputs.check_writable(tmp_path, new)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(StorageError, match=r"rows\.jsonl"):
        outputs.check_writable(new)
    assert not new.parent.exists()
