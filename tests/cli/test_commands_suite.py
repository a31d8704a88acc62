"""`sightline evaluate --suite`: into one folder, again and again, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.errors import StorageError
from sightline.evaluation.logits import find_logits, read_logits, rescore
from sightline.evaluation.parts import WorkFolder
from sightline.results.rows import read_rows
from sightline.runs.sizes import parse_resolutions
from tests.evaluation.suite_data import answering, model_folder, picture
from tests.tiny import pictures, tree


@pytest.fixture
def given(tmp_path):
    """The words of a command on two classes of pictures, at two sizes."""
    data = pictures(tmp_path / "data", ("a", "b"), 3)
    model = model_folder(tmp_path / "model", 2)
    out = tmp_path / "out"
    words = (
        "evaluate", model, "--suite", data, "--out", out, "--resolutions", "16,24", "--logits",
        "--precision", "float32",
    )  # fmt: skip
    return words, out


def test_rows_logits_and_tables(given, cli):
    words, out = given
    code, said, err = cli(*words)
    assert code == 0, err
    rows = read_rows(out / "results.jsonl")
    assert {row.resolution for row in rows} == {16, 24}
    assert {row.preparation for row in rows} == {"model"}
    assert {row.data for row in rows} == {words[3]}
    assert [row for file in find_logits(out / "logits") for row in rescore(read_logits(file))] == rows
    assert f"rows: {out / 'results.jsonl'}" in said
    assert "Top-1 accuracy" in said
    code, said, _ = cli(*words, "--json")
    assert [json.loads(line) for line in said.splitlines()] == [
        json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()
    ]
    code, said, _ = cli("rescore", out / "logits", "--json")
    assert said == (out / "results.jsonl").read_text()


def test_another_preparation_stands_beside_it(given, cli):
    words, out = given
    assert cli(*words)[0] == 0
    for name in ("paper", "navit", "navit_vit_baseline"):
        assert cli(*words, "--preparation", name)[0] == 0
    rows = read_rows(out / "results.jsonl")
    shown = {(row.preparation, row.view, row.resolution) for row in rows}
    assert shown == {
        ("model", "square", 16), ("model", "square", 24), ("paper", "square", 16), ("paper", "square", 24),
        ("navit", "tokens:16", None), ("navit", "tokens:36", None),
        ("navit_vit_baseline", "square", 16), ("navit_vit_baseline", "square", 24),
    }  # fmt: skip
    assert len(find_logits(out / "logits")) == 8
    code, said, err = cli("rescore", out / "logits")
    assert code == 0, err
    assert said.count("prepared as") == 4


def test_a_suite_that_was_stopped_goes_on(given, cli, monkeypatch):
    words, out = given
    shown = answering(monkeypatch, {"/a/": [0], "/b/": [1]})
    save = WorkFolder.save

    def failing(self, key, value):
        if shown[6:]:
            raise StorageError("the disk is full")
        save(self, key, value)

    monkeypatch.setattr(WorkFolder, "save", failing)
    assert cli(*words)[0] == 5
    # The first size is whole; the second is measured again.
    assert len(shown) == 12
    monkeypatch.setattr(WorkFolder, "save", save)
    assert cli(*words)[0] == 0
    assert len(shown) == 18
    rows = read_rows(out / "results.jsonl")
    assert {(row.resolution, row.value) for row in rows if row.metric == "top1"} == {(16, 1.0), (24, 1.0)}
    assert sorted(one.name for one in out.iterdir() if not one.name.startswith(".")) == ["logits", "results.jsonl"]
    assert not list(out.glob(".*parts*"))


def test_a_late_fault_of_one_suite_keeps_what_is_finished_of_another(given, cli, monkeypatch, tmp_path):
    words, out = given
    both = (*words[:4], "--suite", pictures(tmp_path / "more", ("a", "b"), 2), *words[4:])
    shown = answering(monkeypatch, {"/a/": [0], "/b/": [1]})
    save = WorkFolder.save

    def failing(self, key, value):
        if shown[12:]:
            raise StorageError("the disk is full")
        save(self, key, value)

    monkeypatch.setattr(WorkFolder, "save", failing)
    assert cli(*both)[0] == 5
    first = len(shown)
    # One image of the second is another now; the first, whole at both sizes, is not shown again.
    picture(next((tmp_path / "more" / "test").glob("*/*.png")), seed=9)
    monkeypatch.setattr(WorkFolder, "save", save)
    assert cli(*both)[0] == 0
    assert sorted(set(shown[first:])) == sorted(map(str, (tmp_path / "more" / "test").glob("*/*.png")))
    counts = {(row.data, row.count) for row in read_rows(out / "results.jsonl") if row.metric == "top1"}
    assert counts == {(words[3], 6), (f"imagefolder:{tmp_path / 'more'}", 4)}


def test_another_model_replaces_nothing(given, cli, refused, tmp_path):
    words, out = given
    assert cli(*words)[0] == 0
    before = (out / "results.jsonl").read_text()
    other = model_folder(tmp_path / "other", 2, norm_eps=1e-3)
    code, _, err = cli("evaluate", other, *words[2:])
    assert code == 2
    assert "--overwrite" in err
    assert (out / "results.jsonl").read_text() == before
    assert cli("evaluate", other, *words[2:], "--overwrite")[0] == 0
    assert {row.run for row in read_rows(out / "results.jsonl")} == {"other"}


def test_the_embedded_scenes(cli, tmp_path):
    classes = tuple(open_source("scenes").classes)
    model = model_folder(tmp_path / "model", len(classes), class_names=classes)
    words = ("evaluate", model, "--suite", "scenes", "--out", tmp_path / "out", "--images", 8, "--resolutions", "16")
    assert cli(*words)[0] == 0
    rows = read_rows(tmp_path / "out" / "results.jsonl")
    assert {row.split for row in rows} == {"test", "heldout_fonts"}
    assert {row.count for row in rows if not row.slices} == {8}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tune"], "--tune: "),
        (["--measures", "fgsm"], "--measures: "),
        (["--temperature"], "--temperature: "),
        (["--images", "0"], "images = 0"),
        (["--preparation", "papr"], "'paper'"),
        (["--num-classes", "3"], "--num-classes: "),
        (["--no-pretrained"], "--no-pretrained: "),
        (["--weights", "w.pt"], "--weights: "),
        (["--resolutions", "18"], "resolution 18: "),
        (["--resolutions", "1:3"], "--resolutions 1:3: "),
    ],
)
def test_wrong_options(options, said, given, refused):
    words, out = given
    kept = (*words[:6], "--logits") if "--resolutions" in options else words
    refused(*kept, *options, says=[said])
    assert not out.exists()


def test_wrong_places(given, refused, tmp_path):
    words, _ = given
    for place in (tmp_path / "data" / "test", tmp_path / "model", tmp_path / "file"):
        (tmp_path / "file").write_text("mine")
        before = tree(tmp_path)
        refused(*words[:5], place, says=[str(place)])
        assert tree(tmp_path) == before


def test_ranges_of_sizes():
    assert parse_resolutions(["64:1024"], 16) == (64, 96, 128, 176, 256, 368, 512, 720, 1024)
    assert parse_resolutions(["64:1024"], 14) == (70, 84, 126, 182, 252, 364, 518, 728, 1022)
    assert parse_resolutions(["16:20,native", "64"], 4) == (16, 20, 64, View("native"))


SUITE = '''
"""Somebody's own test set: of two answers both are right."""
from sightline.data.open import open_source
from sightline.evaluation.scoring import Scoring
from sightline.evaluation.suites.base import OpenedSuite, EvalSet, Suite


class Mine(Suite):
    name = "mine"

    @classmethod
    def open(cls, argument):
        source = open_source(f"imagefolder:{argument}")
        either = Scoring("either", [[0, 1]] * source.length("test"))
        return OpenedSuite((EvalSet("mine", source, "test", (Scoring("mine"), either)),))
'''
PREPARATION = '''
"""The upper left corner, as it is."""
from sightline.evaluation.preparations.base import Preparation
from sightline.data.targets import Crop


class Corner(Preparation):
    name = "corner"

    def measured(self, size, image_size):
        return Crop((0, 0, min(size[0], image_size[0]), min(size[1], image_size[1])), image_size)
'''


@pytest.mark.slow
def test_a_suite_and_a_preparation_of_somebody_else(given, tmp_path):
    """Files in a folder of their own, found by `--plugins`: in a process of its own, which knows no other."""
    words, out = given
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "my_suite.py").write_text(SUITE)
    (mine / "my_corner.py").write_text(PREPARATION)
    options = ("--preparation", "corner", "--plugins", mine)
    command = [*words[:2], "--suite", f"mine:{tmp_path / 'data'}", *words[4:], *options]
    done = subprocess.run(
        [sys.executable, "-m", "sightline", *map(str, command)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = read_rows(out / "results.jsonl")
    assert {row.data for row in rows} == {"mine", "either"}
    assert {row.preparation for row in rows} == {"corner"}
    assert {row.value for row in rows if row.data == "either" and row.metric == "top1"} == {1.0}
