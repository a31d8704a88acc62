"""`sightline predict --predictions FILE`: the same file from any number of ranks, stopped and gone on or not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.skip_policy import Unreadable
from sightline.distributed.ranks import Ranks
from sightline.hub.load import load_model
from sightline.runs import predict as answers
from sightline.runs.predict import PredictRequest, write_answers
from sightline.tasks.base import task_of
from tests.ranks import together
from tests.tiny import after, killed


@pytest.fixture
def photos(tmp_path):
    """`photos(count)` are files of other sizes, in order."""

    def make(count):
        draws = np.random.default_rng(0)
        folder = tmp_path / "photos"
        folder.mkdir()
        for number in range(count):
            size = (*draws.integers(8, 40, 2).tolist(), 3)
            Image.fromarray(draws.integers(0, 256, size, dtype=np.uint8)).save(folder / f"{number}.png")
        return [str(folder / f"{number}.png") for number in range(count)]

    return make


def written(ranks: Ranks, run: Path, images, out: Path, kill=None):
    """The exit codes and what a bar counted; `kill` is (rank, images that it answers first)."""
    torch.set_num_threads(1)
    answers._PARTS = 4
    if kill is not None and kill[0] == ranks.rank:
        PredictRequest.record = after(kill[1], PredictRequest.record)
    model = load_model(run)
    moved = []
    codes = write_answers(
        PredictRequest(model, task_of(model), "native", None, "float32", 10**6, 3), images, out, ranks, moved.append
    )
    return codes, sum(moved)


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.setattr(answers, "_PARTS", 4)
    return lambda *arguments: written(Ranks(), *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("count", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_two_ranks_write_what_one_writes(count, tiny_run, photos, alone, tmp_path, capsys):
    images = photos(count)
    images = [*images[:3], Unreadable("closed", "a reason"), str(tmp_path / "gone.png"), *images[3:]]
    assert alone(tiny_run, images, tmp_path / "one.jsonl") == ([3, 3], count + 2)
    assert capsys.readouterr().err.count("sightline: warning: ") == 2
    assert together(2, written, tiny_run, images, tmp_path / "two.jsonl") == [([3, 3], count + 2), ([], count + 2)]
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "one.jsonl").read_text().splitlines()]
    assert [line["image"] for line in lines] == [one if isinstance(one, str) else one.path for one in images]
    assert sum("error" in line for line in lines) == 2
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 4])
def test_a_killed_command_goes_on(size, tiny_run, photos, alone, tmp_path, monkeypatch):
    images = photos(14)
    alone(tiny_run, images, tmp_path / "one.jsonl")
    killed(written, Ranks(), tiny_run, images, tmp_path / "two.jsonl", kill=(0, 7))
    assert not (tmp_path / "two.jsonl").exists()
    if size == 1:
        made, record = [], PredictRequest.record
        monkeypatch.setattr(PredictRequest, "record", lambda *given: made.append(1) or record(*given))
        alone(tiny_run, images, tmp_path / "two.jsonl")
        # Parts of three images, of which two were finished.
        assert len(made) == 14 - 6
    else:
        together(size, written, tiny_run, images, tmp_path / "two.jsonl")
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert not list(tmp_path.glob(".two*"))


def test_an_image_that_changed_is_answered_again(tiny_run, photos, alone, tmp_path, monkeypatch):
    images = photos(8)
    killed(written, Ranks(), tiny_run, images, tmp_path / "two.jsonl", kill=(0, 5))
    Image.new("RGB", (9, 9), "red").save(images[0])
    alone(tiny_run, images, tmp_path / "two.jsonl")
    alone(tiny_run, images, tmp_path / "one.jsonl")
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()


def test_the_file_says_what_is_printed(cli, tiny_run, photos, tmp_path):
    images = [*photos(5), tmp_path / "gone.png"]
    code, out, _ = cli("predict", tiny_run, *images, "--json")
    assert code == 3
    file = tmp_path / "new" / "answers.jsonl"
    code, said, err = cli("predict", tiny_run, *images, "--predictions", file)
    assert (code, said) == (3, f"predictions: {file}\n")
    assert "gone.png" in err
    assert "1 of 6 images could not be read" in err
    printed, kept = ([json.loads(line) for line in text.splitlines()] for text in (out, file.read_text()))
    for one, other in zip(printed, kept, strict=True):
        scores = [[entry.pop("score") for entry in line.get("top", ())] for line in (one, other)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)
        assert one == other
    assert cli("predict", tiny_run, *images, "--predictions", file, "--overwrite", "--json")[:2] == (3, "")
