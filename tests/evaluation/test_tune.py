"""The search for an encoding's knob: which candidate it takes, what it asks, and the rows of what it found."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sightline.data.discovery import open_source
from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.accuracy import RunIdentity
from sightline.evaluation.predict import predict_split
from sightline.evaluation.tune import cross_entropy, tune_knob
from sightline.models import create_model

IDENTITY = RunIdentity("name", "scenes", 16, 0)


@pytest.fixture
def model(randomise):
    def make(encoding="lookhere_90"):
        options = {"image_size": 16, "depth": 1, "dim": 48, "heads": 4, "num_classes": 24}
        return randomise(create_model("vit_micro_patch4", encoding=encoding, **options)).eval()

    return make


def test_rows_of_a_tuned_knob(model):
    one = model()
    config = EvaluateConfig((16,), images=10, knobs="both", tune_images=6)
    rows = evaluate(one, open_source("scenes"), config, IDENTITY)
    assert {(row.tuned, row.metric) for row in rows} >= {(False, "top1"), (True, "top1"), (True, "top5")}
    assert {row.knob for row in rows if not row.tuned} == {1.0}
    (tuned,) = {row.knob for row in rows if row.tuned}
    assert tuned in one.knob.candidates
    assert one.knob.value == 1.0


def test_the_search_takes_the_best_and_of_equals_the_nearest(model, monkeypatch):
    one = model()
    source = open_source("scenes")
    candidates = one.knob.candidates
    best = {min(candidates): 0.5, max(candidates): 0.5}
    asked = []

    def said(model, source, split, resolution, indices, **options):
        asked.append((split, model.knob.value))
        return SimpleNamespace(knob=model.knob.value, labels=indices)

    monkeypatch.setattr("sightline.evaluation.tune.predict_split", said)
    monkeypatch.setattr("sightline.evaluation.tune.cross_entropy", lambda said, labels: 1 - best.get(said.knob, 0))
    nearest = min(best, key=lambda value: abs(value - one.knob.default))
    assert tune_knob(one, source, 16, range(3)) == nearest
    assert {split for split, _ in asked} == {"minival"}
    assert {value for _, value in asked} == {*candidates, one.knob.default}
    best.clear()
    assert tune_knob(one, source, 16, range(3)) == one.knob.default
    assert one.knob.value == one.knob.default


def test_the_search_asks_the_better_half_again_and_each_image_once(model, monkeypatch):
    one = model()
    candidates = sorted({one.knob.default, *one.knob.candidates}, key=lambda value: abs(value - 0.7))
    asked = {}

    def said(model, source, split, resolution, indices, **options):
        asked.setdefault(model.knob.value, []).extend(indices)
        return SimpleNamespace(knob=model.knob.value, labels=indices)

    monkeypatch.setattr("sightline.evaluation.tune.predict_split", said)
    monkeypatch.setattr("sightline.evaluation.tune.cross_entropy", lambda said, labels: abs(said.knob - 0.7))
    assert tune_knob(one, open_source("scenes"), 16, range(40)) == 0.7
    few = len(candidates)
    lengths = [len(asked[value]) for value in candidates]
    assert lengths == [40] * -(-few // 4) + [20] * (-(-few // 2) - -(-few // 4)) + [10] * (few - -(-few // 2))
    assert all(len(set(images)) == len(images) for images in asked.values())
    # Spread over the split, whose images may be sorted by class.
    assert max(asked[candidates[-1]]) > 30


def test_a_part_of_the_search_without_a_readable_image_says_nothing(model, monkeypatch):
    """A mean over no image is no number, by which no candidate is better."""
    one = model()

    def said(model, source, split, resolution, indices, **options):
        count = 0 if 0 in indices else len(indices)
        logits = np.zeros((count, 24), np.float32)
        logits[:, 0] = -abs(model.knob.value - 0.7)
        return SimpleNamespace(logits=logits, labels=np.zeros(count, np.int64))

    monkeypatch.setattr("sightline.evaluation.tune.predict_split", said)
    assert tune_knob(one, open_source("scenes"), 16, range(3)) == 0.7


def test_a_tuned_knob_alone(model):
    """Nothing is measured with the default where a tuned one was asked for, but where there is none."""
    for encoding, tuned in (("lookhere_90", True), ("learned_1d", False)):
        said = []
        config = EvaluateConfig((16,), images=5, knobs="tuned", tune_images=4)
        rows = evaluate(model(encoding=encoding), open_source("scenes"), config, IDENTITY, answers=said)
        assert {row.tuned for row in rows} == {tuned}
        assert len(said) == 5


def test_classes_are_the_models_also_where_the_data_numbers_them_otherwise(model):
    one, source, found = model(), open_source("scenes"), []
    for labels in (None, np.arange(24), np.roll(np.arange(24), 5)):
        said = predict_split(one, source, "minival", 16, range(8))
        found.append(cross_entropy(said, labels))
    scores = np.exp(said.logits) / np.exp(said.logits).sum(axis=1, keepdims=True)
    expected = -np.log(scores[np.arange(8), labels[said.labels]]).mean()
    assert found[0] == found[1]
    assert found[2] == pytest.approx(expected, rel=1e-5)
    assert found[2] != pytest.approx(found[0], rel=1e-3)


def test_no_knob_to_search(model):
    with pytest.raises(InputError, match="encoding learned_1d has no knob"):
        tune_knob(model(encoding="learned_1d"), open_source("scenes"), 16, range(3))
