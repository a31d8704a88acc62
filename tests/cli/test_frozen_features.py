"""`sightline evaluate --measures few_shot,knn,linear_probe`."""

from __future__ import annotations

import json
import shutil

from sightline.evaluation import features
from sightline.hub.load import save_model
from sightline.models import create_model
from sightline.results.rows import read_rows
from tests.tiny import pictures

ALL = "few_shot,knn,linear_probe"


def test_rows_stand_with_the_others_and_the_same_command_gives_them_again(
    cli, refused, run_copy, tmp_path, monkeypatch
):
    monkeypatch.setattr(features, "TRAIN_IMAGES", 400)
    words = ["evaluate", run_copy, "--resolutions", "8", "--images", 9, "--threads", 1]
    code, out, _ = cli(*words, "--measures", ALL)
    assert code == 0
    for said in ("a few shots in % by shots", "nearest neighbours in % by k", "a linear probe in %"):
        assert said in out
    fresh = [row for row in read_rows(run_copy / "results.jsonl") if row.resolution == 8]
    found = {(row.metric, *row.slices.values()): row.value for row in fresh}
    assert {("few_shot_top1", shots) for shots in (1, 5, 10, 25)} < found.keys()
    assert {("knn_top1", k) for k in (10, 20, 100, 200)} < found.keys()
    assert found["knn_train_images",] == found["linear_probe_train_images",] == 400
    assert found["linear_probe_top1",] > 0.3
    code, out, _ = cli(*words, "--measures", ALL, "--out", tmp_path / "rows", "--json")
    again = [json.loads(line) for line in out.splitlines()]
    assert {(row["metric"], *row["slices"].values()): row["value"] for row in again} == found
    refused(*words, "--measures", "knnn", says=["measure 'knnn' is not known", "did you mean 'knn'?"])
    refused(*words, "--split", "train", "--measures", "knn", says=["knn learns from split train"])


def test_an_image_of_train_that_cannot_be_read_counts_like_any_other(cli, tmp_path):
    data = pictures(tmp_path / "data", count=6)
    damaged = tmp_path / "data" / "train" / "a" / "3.png"
    damaged.write_bytes(damaged.read_bytes()[:30])
    model = create_model(
        "vit_micro_patch4", image_size=16, depth=1, dim=48, heads=4, num_classes=2, class_names=("a", "b")
    )
    save_model(model, tmp_path / "model")
    words = ["evaluate", tmp_path / "model", "--data", data, "--resolutions", "16", "--threads", 1]
    words += ["--out", tmp_path / "rows", "--skip-unreadable"]
    # Without a measure nothing of train is read.
    assert cli(*words, 0)[0] == 0
    shutil.rmtree(tmp_path / "rows")
    code, _, err = cli(*words, 0, "--measures", "knn")
    assert code == 3
    assert "train/a/3.png: not an image" in err
    # By its header, before anything is measured.
    assert "reading headers of train" in err
    assert "testing" not in err
    assert not (tmp_path / "rows").exists()
    code, out, err = cli(*words, 1, "--measures", ALL)
    assert code == 0
    assert "left out" in err
    assert "3.png" in err
    found = {(row.metric, *row.slices.values()): row.value for row in read_rows(tmp_path / "rows" / "results.jsonl")}
    # 11 of 12 images; of each class one is held out, and of the smaller one 4 are left.
    assert found["knn_train_images",] == 11
    assert found["linear_probe_train_images",] == 9
    assert found["few_shot_smallest_class",] == 4
    assert {key for key in found if key[0] == "few_shot_top1"} == {("few_shot_top1", 1)}
    assert "smallest class to take shots of" in out
