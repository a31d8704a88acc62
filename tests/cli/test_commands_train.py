"""`sightline train`: what it leaves, what it refuses to touch, and that a run can be made again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

import sightline
from sightline.encodings.knob import without_knobs
from sightline.io.yaml import read_yaml
from sightline.results.rows import read_rows
from tests.tiny import MEASURES, MODEL, log_lines, tree, weights

OPTIONS = [f"--model_options.{key}={value}" for key, value in MODEL.items()]
TINY = ["--data", "digits", "--images", 64, "--threads", 1, "--precision=float32", *OPTIONS]

LEFT = {
    "checkpoint", "checkpoint.best", "checkpoints", "config.yaml", "log.jsonl", "predictions.csv", "progress.json",
    "results.jsonl", "validation.jsonl",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_a_run_leaves(tiny_run):
    assert set(os.listdir(tiny_run)) == LEFT
    assert set(os.listdir(tiny_run / "checkpoint")) == {
        "checksums.json", "config.json", "log.jsonl", "model.safetensors", "training", "validation.jsonl",
    }  # fmt: skip
    rows = read_rows(tiny_run / "results.jsonl")
    assert {
        (row.run, row.data, row.split, row.resolution, row.metric, row.images) for row in rows if not row.slices
    } == {("tiny", "digits", "test", 16, metric, 300) for metric in MEASURES}
    assert len(log_lines(tiny_run)) == 2
    config = read_yaml(tiny_run / "config.yaml")
    assert (config["images"], config["resolution"], config["precision"]) == (64, 16, "float32")


def test_the_saved_configuration_makes_the_run_again(cli, tiny_run):
    assert cli("train", "--config", tiny_run / "config.yaml", "--out", "again", "--threads", 1)[0] == 0
    assert weights(Path("again")) == weights(tiny_run)
    assert log_lines(Path("again")) == log_lines(tiny_run)
    assert Path("again/config.yaml").read_text() == (tiny_run / "config.yaml").read_text()


def test_an_option_goes_before_the_file_and_the_file_before_the_recipe(cli, tiny_run):
    code, *_ = cli("train", "--config", tiny_run / "config.yaml", "--images", 32, "--seed=4", "--out", "a")
    assert code == 0
    config = read_yaml("a/config.yaml")
    assert (config["images"], config["seed"], config["model_options"]["depth"]) == (32, 4, 1)
    # What the recipe of digits says and nobody else does.
    assert config["model_options"]["mean"] == [0.29] * 3


def test_joined_encodings_with_options_of_a_part(cli):
    settings = ["--encoding_options.rope_mixed.theta=50", "--encoding", "rope_mixed+learned_1d"]
    assert cli("train", *TINY, *settings, "--out", "a")[0] == 0
    assert cli("train", "--config", "a/config.yaml", "--out", "b", "--threads", 1)[0] == 0
    assert weights(Path("a")) == weights(Path("b"))
    saved = json.loads(Path("a/checkpoint/config.json").read_text())["architecture"]["encoding_options"]
    assert saved["rope_mixed.theta"] == 50


def test_json_is_rows_and_nothing_else(cli):
    code, out, err = cli("train", *TINY, "--out", "a", "--json")
    assert code == 0
    metrics = [row["metric"] for row in map(json.loads, out.splitlines()) if not row["slices"]]
    assert metrics[:2] == ["top1", "top5"]
    assert sorted(metrics) == sorted(MEASURES)
    assert out == Path("a/results.jsonl").read_text()
    assert "training" in err


def test_a_folder_that_exists_is_left_alone(refused, run_copy):
    before = tree(run_copy)
    refused("train", *TINY, "--out", run_copy, says=["exists already", "--resume", "--overwrite"])
    refused("train", *TINY, "--out", run_copy, "--resume", "--overwrite", says=["--resume", "--overwrite"])
    refused("train", *TINY, "--out", run_copy / "log.jsonl", says=["log.jsonl"])
    refused("train", *TINY, "--out", run_copy / "log.jsonl", "--overwrite", says=["log.jsonl"])
    assert tree(run_copy) == before


def test_overwrite_begins_anew(cli, run_copy):
    before = weights(run_copy)
    (run_copy / "report.html").write_text("old")
    (run_copy / ".results.jsonl.writing-123").write_text("old")
    shutil.copytree(run_copy / "checkpoint", run_copy / "checkpoints" / ".step-00000003.tmp-abcd")
    assert cli("train", *TINY, "--seed", 5, "--out", run_copy, "--overwrite")[0] == 0
    assert weights(run_copy) != before
    assert set(os.listdir(run_copy)) == LEFT


@pytest.mark.parametrize(
    "mine", ["thesis.tex", ".env", ".git/config", "checkpoint/notes.txt", "checkpoint/deeper/a", "log.jsonl/a", "x/y"]
)
def test_overwrite_never_deletes_what_no_run_wrote(mine, refused, run_copy):
    file = run_copy / mine
    if file.parent.is_file():
        file.parent.unlink()
    file.parent.mkdir(exist_ok=True)
    file.write_text("years of work")
    before = tree(run_copy)
    refused("train", *TINY, "--out", run_copy, "--overwrite", says=["--overwrite", mine.split("/")[0], "not deleted"])
    assert tree(run_copy) == before


def test_overwrite_does_not_follow_a_link(cli, run_copy):
    Path("elsewhere").mkdir()
    Path("elsewhere/model.safetensors").write_text("years of work")
    (run_copy / "checkpoint").unlink()
    (run_copy / "checkpoint").symlink_to(Path("elsewhere").resolve())
    assert cli("train", *TINY, "--out", run_copy, "--overwrite")[0] == 0
    assert Path("elsewhere/model.safetensors").exists()


def test_resume_of_another_configuration(refused, run_copy):
    before = tree(run_copy)
    says = ["--resume", str(run_copy), "seed 0"]
    refused("train", *TINY, "--seed", 1, "--out", run_copy, "--resume", says=says)
    assert tree(run_copy) == before
    # Also before the first checkpoint, where config.yaml is all that there is.
    config = (run_copy / "config.yaml").read_bytes()
    shutil.rmtree(run_copy)
    run_copy.mkdir()
    (run_copy / "config.yaml").write_bytes(config)
    before = tree(run_copy)
    refused("train", *TINY, "--seed", 1, "--out", run_copy, "--resume", says=says)
    assert tree(run_copy) == before


def test_resume_of_a_finished_run_keeps_what_was_measured(cli, run_copy):
    assert cli("evaluate", run_copy, "--resolutions", "24", "--images", 5, "--threads", 1)[0] == 0
    before = weights(run_copy)
    code, out, _ = cli("train", *TINY, "--out", run_copy, "--resume")
    assert (code, out.partition(": ")[0]) == (0, str(run_copy))
    assert weights(run_copy) == before
    assert {row.resolution for row in read_rows(run_copy / "results.jsonl")} == {16, 24}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--images=3"], ["--images"]),
        (["--data=scenes"], ["--data"]),
        (["--epochs", "2"], ["images 64 and epochs 2.0"]),
        (["--epochs", "nan"], ["epochs", "finite"]),
        (["--seed", "1.5"], ["seed = 1.5", "whole number"]),
        (["--seed", str(2**64)], ["seed = 18446744073709551616"]),
        (["--resolution", "18"], ["18", "multiple of patch_size 4", "16 or 20"]),
        (["--encoding", "lookher_90"], ["'lookher_90' is not known; did you mean 'lookhere_90'?"]),
        (["--model", "vit_micro"], ["'vit_micro' is not known", "'vit_micro_patch4' or 'vit_micro_patch8'?"]),
        (["--device", "gpu"], ["device 'gpu'", "cpu"]),
        (["--recipe", "navit_scene"], ["'navit_scene'", "'navit_scenes'"]),
        (["--config", "missing.yaml"], ["missing.yaml: no such file"]),
        (["--leraning-rate", "3"], ["--leraning-rate"]),
    ],
)
def test_what_is_refused(words, says, refused, tmp_path):
    refused("train", *TINY, *words, "--out", "a", says=says)
    assert tree(tmp_path) == {}


@pytest.mark.slow
def test_the_recipe_of_digits(cli, tmp_path):
    """Real input; six of its ten passes."""
    assert cli("train", "--data", "digits", "--epochs", "6", "--out", "a")[0] == 0
    top1 = {row.resolution: row.value for row in read_rows("a/results.jsonl") if row.metric == "top1"}
    assert list(top1) == [16]
    assert top1[16] >= 0.93
    code, out, _ = cli("evaluate", "a", "--resolutions", "16,24,32", "--json")
    assert code == 0
    found = {row["resolution"]: row["value"] for row in map(json.loads, out.splitlines()) if row["metric"] == "top1"}
    assert found[16] == top1[16]
    assert set(found) == {16, 24, 32}
    assert min(found.values()) > 0.4


def test_a_run_that_begins_with_another(cli, refused, tiny_run, tmp_path):
    """Another encoding is new; weights, preparation and sizes are the other run's, before the first step."""
    words = ["train", "--data", "digits", "--images", "64", "--init-from", tiny_run, "--precision=float32"]
    code, _, err = cli(*words, "--encoding", "rope_mixed", "--out", tmp_path / "a", "--optimizer.lr=1e-30")
    assert code == 0
    assert "encoding.freqs" in err
    before, after = (sightline.load_model(folder) for folder in (tiny_run, tmp_path / "a"))
    assert (after.config.dim, after.config.mean) == (before.config.dim, before.config.mean)
    # The knob is each encoding's own.
    for name, one in without_knobs(before.state_dict()).items():
        assert torch.equal(one, after.state_dict()[name]), name
    # The same encoding where none is asked for; resumed with the same words.
    code, _, err = cli(*words, "--out", tmp_path / "b")
    assert (code, "encoding.freqs" in err) == (0, False)
    assert cli(*words, "--out", tmp_path / "b", "--resume")[0] == 0
    refused(*words, "--model", "vit_micro_patch4", "--out", tmp_path / "c", says=["init_from"])
    refused(*words[:-3], tmp_path / "none", "--out", tmp_path / "c", says=[str(tmp_path / "none")])
    assert not (tmp_path / "c").exists()


def test_a_named_recipe(cli):
    """Packed, within a budget; what the flags say replaces the recipe's own."""
    small = [*OPTIONS, "--packing.tokens=256", "--packing.resolutions=[8,24]", "--precision=float32"]
    code, out, err = cli("train", "--recipe", "navit_scenes", "--tokens", 2000, "--threads", 1, *small, "--out", "a")
    assert code == 0, err
    config = read_yaml("a/config.yaml")
    assert (config["data"], config["tokens"], config["flops"], config["images"]) == ("scenes", 2000, None, None)
    assert (config["packing"]["drop"], config["packing"]["tokens"]) == ("constant", 256)
    assert json.loads(log_lines(Path("a"))[-1])["tokens"] >= 2000
    assert "packed: " in out


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["packing.tokens=1"], "packing.tokens 1: no room beside 1 prefix tokens"),
        (["packing.drop=half"], 'packing.drop = "half"'),
        (["images=1000000000000000000000"], "images = 10000000000000000000"),
        (["packing=3"], "packing"),
    ],
)
def test_packing_is_refused_before_anything_is_written(refused, settings, says):
    words = [f"--{setting}" for setting in settings]
    refused("train", "--recipe", "navit_scenes", *words, "--out", "a", says=[says])
    assert not Path("a").exists()
