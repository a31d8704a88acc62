"""`sightline evaluate --out DIR`, again and again: rows and files of one measurement come and go together."""

from __future__ import annotations

import json

import pytest
import torch

import sightline
from sightline.evaluation.logits import find_logits, read_logits
from sightline.hub.load import save_model
from sightline.results.predictions import read_predictions
from sightline.results.rows import read_rows
from tests.contract.randomise import randomise_parameters
from tests.data import dense_folders as folders
from tests.evaluation.suite_data import model_folder, validation
from tests.tiny import pictures


@pytest.fixture
def data(tmp_path):
    return pictures(tmp_path / "data", ("a", "b"), 3)


@pytest.fixture
def boxes(tmp_path):
    """A model of boxes whose answers are many, and its COCO folder."""
    model = sightline.create_model(
        "vit_micro_patch4", depth=1, dim=48, heads=2, encoding="rope_axial", task="detection", head="fcos",
        image_size=16, num_classes=3, class_names=["car", "cat", "toothbrush"],
    )  # fmt: skip
    randomise_parameters(model)
    for name, parameter in model.head.named_parameters():
        if name.endswith(("classes.bias", "sides.bias")):
            torch.nn.init.ones_(parameter)
    save_model(model, tmp_path / "model")
    root = folders.coco(tmp_path / "boxes")
    return [
        "evaluate",
        tmp_path / "model",
        "--data",
        f"coco:{root}",
        "--resolutions",
        16,
        "--out",
        tmp_path / "out",
    ], root


def found_boxes(tmp_path) -> list[dict]:
    (file,) = (tmp_path / "out" / "predictions").glob("*.json")
    return json.loads(file.read_text())


def test_boxes_keep_the_ids_of_their_images_where_one_cannot_be_read(cli, boxes, tmp_path):
    words, root = boxes
    assert cli(*words)[0] == 0
    whole = found_boxes(tmp_path)
    ids = sorted({one["image_id"] for one in whole})
    assert len(ids) > 2
    names = {
        one["id"]: one["file_name"]
        for one in json.loads(next(root.glob("annotations/*val*.json")).read_text())["images"]
    }
    (root / "val2017" / names[ids[1]]).write_bytes(b"no image")
    assert cli(*words, "--overwrite", "--skip-unreadable", 1)[0] == 0
    left = found_boxes(tmp_path)
    assert left == [one for one in whole if one["image_id"] != ids[1]]


def test_fewer_images_replace_no_files(cli, boxes, tmp_path):
    words, _ = boxes
    assert cli(*words)[0] == 0
    before = found_boxes(tmp_path), (tmp_path / "out" / "results.jsonl").read_text()
    assert cli(*words, "--images", 1)[0] == 0
    assert (found_boxes(tmp_path), (tmp_path / "out" / "results.jsonl").read_text()) == before


def test_other_weights_are_refused_and_replace_all(cli, refused, data, tmp_path):
    model_folder(tmp_path / "one/m", 2)
    model_folder(tmp_path / "two/m", 2, depth=2)
    out = tmp_path / "out"
    words = ["--data", data, "--out", out, "--logits"]
    assert cli("evaluate", tmp_path / "one/m", *words, "--resolutions", "16,24")[0] == 0
    before = (out / "results.jsonl").read_text()
    refused("evaluate", tmp_path / "two/m", *words, "--resolutions", 24, says=["--out", "--overwrite"])
    assert (out / "results.jsonl").read_text() == before
    assert cli("evaluate", tmp_path / "two/m", *words, "--resolutions", 24, "--overwrite")[0] == 0
    assert {row.resolution for row in read_rows(out / "results.jsonl")} == {24}
    assert {read_logits(file).measured["resolution"] for file in find_logits(out)} == {24}
    assert {one.resolution for one in read_predictions(out / "predictions.csv")} == {24}


def test_suites_stay_where_other_data_are_measured(cli, data, tmp_path):
    model, out = model_folder(tmp_path / "m", 2), tmp_path / "out"
    other = pictures(tmp_path / "other", ("a", "b"), 2)
    words = ["evaluate", model, "--out", out, "--resolutions", 16]
    assert cli(*words, "--data", data, "--suite", data)[0] == 0
    assert cli(*words, "--data", other, "--overwrite")[0] == 0
    assert {(row.data, row.preparation) for row in read_rows(out / "results.jsonl")} == {
        (str(other), ""), (str(data), "model"),
    }  # fmt: skip


def test_rows_of_a_suite_in_the_folder_of_a_run(cli, run_copy, tmp_path):
    """A report of the run and a table of runs are of its own data."""
    sizes = ("--resolutions", "8,16", "--images", 6)
    assert cli("evaluate", run_copy, *sizes)[0] == 0
    table = cli("table", run_copy, "--split", "test", "--resolutions", "8,16", "--json")
    assert table[0] == 0
    assert cli("evaluate", run_copy, "--suite", "digits", *sizes)[0] == 0
    assert cli("table", run_copy, "--split", "test", "--resolutions", "8,16", "--json") == table
    assert cli("report", run_copy, "--out", tmp_path / "page.html")[0] == 0
    assert cli("report", run_copy, "--data", "digits", "--out", tmp_path / "suite.html")[0] == 0


def test_two_suites_of_one_name_are_refused(refused, tmp_path):
    model = model_folder(tmp_path / "m")
    roots = [validation(tmp_path / name / "val", {0: 1}).parent for name in ("first", "second")]
    words = [word for one in roots for word in ("--suite", f"imagenet:{one}")]
    refused("evaluate", model, *words, "--out", tmp_path / "out", says=["--suite"])
    assert not (tmp_path / "out").exists()
