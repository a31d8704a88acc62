"""Outputs over inputs: nothing that a command reads, or that a run owns, is replaced or deleted by a command."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.tiny import MODEL, tree

OPTIONS = [f"--model_options.{key}={value}" for key, value in MODEL.items()]
TRAIN = ["--images", 32, "--threads", 1, *OPTIONS]
BENCH = ["bench", "memory", "--model", "vit_micro_patch4", "--resolution", "32", "--device", "cpu"]


@pytest.fixture
def pictures(tmp_path):
    """train: two classes of two images; as a data set."""
    root = tmp_path / "pictures"
    for label, name in enumerate(("cat", "dog")):
        (root / "train" / name).mkdir(parents=True)
        for number in range(2):
            image = np.full((16, 16, 3), 40 * (2 * label + number), np.uint8)
            Image.fromarray(image).save(root / "train" / name / f"{number}.png")
    return root


@pytest.fixture
def harmless(refused, tmp_path):
    """`harmless(*words, says=[...])`: refused in a line, and not a byte below the test's folder has changed."""

    def check(*words, says):
        before = tree(tmp_path)
        refused(*words, says=says)
        assert tree(tmp_path) == before

    return check


@pytest.mark.parametrize("place", ["", "checkpoint", "link"])
def test_overwrite_never_deletes_what_the_run_begins_with(place, harmless, run_copy, tmp_path):
    source = run_copy / place if place != "link" else tmp_path / "link"
    if place == "link":
        source.symlink_to(run_copy / "checkpoint", target_is_directory=True)
    words = ["train", "--data", "digits", "--init-from", source, *TRAIN, "--out", run_copy, "--overwrite"]
    harmless(*words, says=["--out", str(run_copy)])


def test_begun_by_a_configuration(harmless, run_copy, tmp_path):
    """The weights named in a file, and the file itself in the folder that would be deleted."""
    file = tmp_path / "mine.yaml"
    file.write_text(f"data: digits\ninit_from: local-dir:{run_copy}\nimages: 32\n")
    harmless("train", "--config", file, "--out", run_copy, "--overwrite", says=[str(run_copy)])
    harmless(
        "train", "--config", run_copy / "config.yaml", "--out", run_copy, "--overwrite",
        says=[str(run_copy), "config.yaml"],
    )  # fmt: skip


OWNED = ("checkpoint/model.safetensors", "checkpoint/config.json", "config.yaml", "log.jsonl", "results.jsonl")
# Not there in a run: by them its folder would be taken for that of a model.
OF_A_MODEL = ("config.json", "checksums.json", "model.safetensors")
WRITERS = {
    "evaluate": ["evaluate", "{run}", "--resolutions", "8", "--images", "8", "--overwrite", "--out"],
    "export": ["export", "{run}", "--to", "torch", "--overwrite", "--output"],
    "report": ["report", "{run}", "--overwrite", "--out"],
    "bench memory": [*BENCH, "--out"],
    "bench attention": ["bench", "attention", "--quick", "--out"],
    "bench model": ["bench", "model", "--quick", "--out"],
}


@pytest.mark.parametrize("writer", WRITERS)
def test_no_output_over_what_a_run_owns(writer, harmless, run_copy):
    for name in (*OWNED, *OF_A_MODEL):
        words = [word.format(run=run_copy) if isinstance(word, str) else word for word in WRITERS[writer]]
        harmless(*words, run_copy / name, says=[str(run_copy / name), str(run_copy)])


@pytest.mark.parametrize("writer", ["export", "report", "bench memory"])
def test_nor_beside_the_files_of_a_checkpoint(writer, harmless, run_copy):
    """A checkpoint is replaced as a whole: what stands in it would go with it."""
    words = [str(word).format(run=run_copy) for word in WRITERS[writer]]
    place = run_copy / "checkpoint" / "mine.pt2"
    harmless(*words, place, says=[str(place)])


def test_links_and_roundabout_ways(harmless, run_copy, tmp_path):
    weights = run_copy / "checkpoint" / "model.safetensors"
    (tmp_path / "link").symlink_to(weights)
    os.link(weights, tmp_path / "hard")
    (tmp_path / "folder").symlink_to(run_copy / "checkpoint", target_is_directory=True)
    ways = (
        "link",
        "hard",
        "folder/config.json",
        "folder/new.pt2",
        "tiny/../tiny/log.jsonl",
        "tiny/checkpoint/../x/../log.jsonl",
    )
    for way in ways:
        words = ["export", run_copy, "--to", "torch", "--overwrite", "--output", tmp_path / way]
        harmless(*words, says=["--output", str(tmp_path / way)])


def test_another_runs_files_are_its_own_too(harmless, run_copy, tiny_run):
    harmless(
        "export", tiny_run, "--to", "torch", "--overwrite", "--output", run_copy / "log.jsonl", says=["belongs to"]
    )
    (run_copy / "checkpoint").unlink()
    # A run that has not saved yet: in a folder of this name its first checkpoint would be refused.
    harmless("export", tiny_run, "--to", "torch", "--output", run_copy / "checkpoint" / "a.pt2", says=["belongs to"])


@pytest.mark.slow
def test_what_a_run_may_be_given(cli, run_copy):
    """Its rows by `evaluate` without --out, its page by `report`."""
    assert cli("evaluate", run_copy, "--resolutions", "8", "--images", "8")[0] == 0
    for _ in range(2):
        assert cli("report", run_copy, "--out", run_copy / "report.html", "--overwrite")[0] == 0


def test_rows_are_replaced_by_rows_alone(harmless, cli, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    harmless(*BENCH, "--out", tmp_path / "notes.txt", says=["notes.txt"])
    for _ in range(2):
        assert cli(*BENCH, "--out", tmp_path / "rows.jsonl")[0] == 0


@pytest.mark.parametrize("place", ["train/run1", "run1", "train/cat/run1", "", "link", "around"])
def test_no_run_in_its_data(place, harmless, pictures, tmp_path):
    (tmp_path / "link").symlink_to(pictures / "train", target_is_directory=True)
    out = {"link": tmp_path / "link" / "run1", "around": tmp_path}.get(place, pictures / place)
    words = ["train", "--data", f"imagefolder:{pictures}", "--encoding", "none", *TRAIN, "--out", out]
    for more in ([], ["--overwrite"], ["--resume"]):
        harmless(*words, *more, says=["--out", str(out), str(pictures)])


def test_a_class_that_is_a_link(harmless, pictures, tmp_path):
    shutil.move(pictures / "train" / "dog", tmp_path / "dogs")
    (pictures / "train" / "dog").symlink_to(tmp_path / "dogs", target_is_directory=True)
    words = ["train", "--data", f"imagefolder:{pictures}", *TRAIN, "--out", tmp_path / "dogs" / "run"]
    harmless(*words, says=[str(tmp_path / "dogs")])


def test_nor_any_other_output(harmless, run_copy, pictures, tmp_path):
    data = f"imagefolder:{pictures}"
    (tmp_path / "link").symlink_to(pictures / "train" / "cat")
    for out in (pictures / "train" / "cat" / "rows", tmp_path / "link"):
        words = ["evaluate", run_copy, "--data", data, "--resolutions", "8", "--out", out, "--overwrite"]
        harmless(*words, says=[str(out), str(pictures)])
    harmless("cascade", run_copy, data, "--out", pictures / "train" / "figures", says=[str(pictures)])


def test_what_a_model_was_trained_on_is_its_data_too(cli, harmless, pictures, tmp_path):
    run = tmp_path / "run"
    code, _, err = cli("train", "--data", f"imagefolder:{pictures}", "--resolution", 16, *TRAIN, "--out", run)
    assert code == 0, err
    for words in (["export", run, "--to", "torch", "--output"], ["report", run, "--out"]):
        harmless(*words, pictures / "train" / "cat" / "a.html", says=["a.html", str(pictures)])


MINE = {
    "a configuration of another program": {"config.yaml": "name: mine\ndata: x\n"},
    "a page": {"report.html": "<p>mine"},
    "rows": {"results.jsonl": "{}\n"},
    "another log": {"log.jsonl": '{"epoch": 1}\n', "config.yaml": "a: 1\n"},
    "a note": {"note.txt": "mine"},
}


@pytest.mark.parametrize("mine", MINE)
def test_overwrite_deletes_runs_alone(mine, harmless, tmp_path):
    """A name proves nothing: a folder in which no run left anything but such names is not deleted."""
    (tmp_path / "mine").mkdir()
    for name, text in MINE[mine].items():
        (tmp_path / "mine" / name).write_text(text)
    harmless("train", "--data", "digits", *TRAIN, "--out", tmp_path / "mine", "--overwrite", says=["not deleted"])
    harmless("demo", "--quick", "--out", tmp_path / "mine", "--overwrite", says=["not deleted"])


@pytest.mark.parametrize("what", ["a note in a model", "a run's checkpoint", "a run", "a folder of mine"])
def test_convert_replaces_models_alone(what, harmless, cli, run_copy, tmp_path):
    dest = {"a run": run_copy, "a run's checkpoint": run_copy / "checkpoint"}.get(what, tmp_path / "dest")
    if what == "a note in a model":
        shutil.copytree(run_copy / "checkpoint", dest)
    dest.mkdir(exist_ok=True)
    if dest == tmp_path / "dest":
        (dest / "note.txt").write_text("mine")
    harmless("convert", "timm", tmp_path / "w.safetensors", dest, "--overwrite", says=[str(dest)])
