"""Ways to score one pass, and how they are stored."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from sightline.evaluation.logits import StoredLogits, read_logits, rescore, task_record, write_logits
from sightline.evaluation.scoring import Scoring
from sightline.models import ViTConfig
from sightline.tasks.base import make_task

MEASURED = {
    "run": "r", "encoding": "e", "task": "classification", "data": "all", "split": "test", "train_resolution": 16,
    "seed": 0, "commit": "c", "hardware": "h", "resolution": 16, "grid": (4, 4), "knob": None, "tuned": False,
    "seconds": 1.0, "view": "square", "patches": 16.0, "shrunk": None, "ranks": 1,
}  # fmt: skip


def stored(images=40, classes=9, scorings=(), seed=0):
    draws = np.random.default_rng(seed)
    # Few values, so that many are equal.
    logits = draws.integers(-3, 4, (images, classes)).astype(np.float32)
    task = task_record(make_task("classification", ViTConfig(num_classes=classes)))
    names = [f"image {number}" for number in range(images)]
    parts = logits, draws.integers(0, classes, images), np.arange(images), names, [{} for _ in names]
    return StoredLogits(*parts, task, dict(MEASURED), "work", scorings)


def written_out(one, scoring, most):
    """Of each image that has a right answer whether one is among the `most` best, by sorting, of equal scores the first
    class before the second."""
    found = []
    classes = range(one.logits.shape[1]) if scoring.classes is None else scoring.classes
    for row, label, number in zip(one.logits, one.labels, range(len(one.labels)), strict=True):
        right = [label] if scoring.right is None else scoring.right[number]
        best = sorted(classes, key=lambda each, row=row: (-row[each], each))[:most]
        found += [any(each in right for each in best)] if len(right) else []
    return found


def ways(images=40, classes=9, seed=1):
    draws = np.random.default_rng(seed)
    chosen = (1, 2, 4, 5, 7, 8)
    several = [draws.choice(classes, draws.integers(0, 4), replace=False).tolist() for _ in range(images)]
    return (
        Scoring("plain"),
        Scoring("several", several),
        Scoring("some", [[int(draws.choice(chosen))] for _ in range(images)], chosen),
    )


def test_answers_are_scored_as_they_are_written_out(tmp_path):
    one = stored(scorings=ways())
    write_logits(tmp_path, "a.npz", one)
    rows = rescore(read_logits(tmp_path / "a.npz"))
    assert rows == rescore(one)
    for scoring in one.scorings:
        found = {row.metric: row for row in rows if row.data == scoring.data and not row.slices}
        for metric, most in (("top1", 1), ("top5", 5)):
            expected = written_out(one, scoring, most)
            assert found[metric].value == np.mean(expected), (scoring.data, metric)
            assert found[metric].count == len(expected)
        assert found["top1"].classes == (9 if scoring.classes is None else 6)
        # Every metric sees the same answers as right: the surest of several.
        assert found["nll"].count == len(expected)
    assert 0 < len(written_out(one, one.scorings[1], 1)) < 40


def test_likelihoods_are_of_the_likeliest_right_class():
    one = dataclasses.replace(stored(1, 3), logits=np.array([[0.0, 2.0, 1.0]], np.float32), labels=np.array([0]))
    rows = rescore(dataclasses.replace(one, scorings=[Scoring("two", [[0, 2]]), Scoring("among", [[0]], (0, 2))]))
    nll = {row.data: row.value for row in rows if row.metric == "nll"}
    assert nll["two"] == pytest.approx(np.log(np.exp([0, 2, 1]).sum()) - 1, abs=1e-12)
    assert nll["among"] == pytest.approx(np.log(1 + np.e), abs=1e-12)


def test_groups_follow_the_classes_that_are_left():
    one = stored(scorings=[Scoring("some", [[4]] * 40, (1, 4, 8))])
    one.task["groups"] = {"near": [0, 4, 8], "far": [2, 3]}
    (scored,) = one.scored()
    assert scored.task["groups"] == {"near": [1, 2], "far": []}
    assert scored.task["classes"] == ["1", "4", "8"]


def test_where_nothing_is_right_there_are_no_rows():
    assert rescore(stored(scorings=[Scoring("none", [[] for _ in range(40)])])) == []
    assert rescore(stored(0, scorings=[Scoring("plain")])) == []


def test_a_file_without_scorings_is_what_it_was(tmp_path):
    """And says nothing of a preparation that is the model's own."""
    write_logits(tmp_path, "a.npz", stored())
    with np.load(tmp_path / "a.npz") as file:
        about = json.loads(file["about"].tobytes())
    assert about["scorings"] == []
    assert "preparation" not in about["measured"]
    rows = rescore(read_logits(tmp_path / "a.npz"))
    assert {row.preparation for row in rows} == {""}
    assert rows == rescore(stored())
