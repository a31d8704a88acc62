"""`sightline evaluate --measures few_shot,knn,linear_probe`."""

from __future__ import annotations

import json

from sightline.evaluation import features
from sightline.results.rows import read_rows

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
