"""The search for an encoding's knob: which candidate it takes, what it asks, and the rows of what it found."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sightline.data.discovery import open_source
from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.measure import RunIdentity
from sightline.evaluation.predict import predict_split
from sightline.evaluation.tune import tune_knob
from sightline.models import create_model
from sightline.tasks.base import task_of
from tests.batches import said

IDENTITY = RunIdentity("name", "scenes", 16, 0)


def of_knob(loss: Callable[[float], float]) -> Any:
    """A task whose loss of an image is a function of the knob, which is what the stand-ins below give as outputs."""
    return SimpleNamespace(tuning_loss=lambda outputs, targets, layout: (loss(outputs) * targets, targets))


def one_batch(outputs: Any, targets: Any) -> Any:
    return SimpleNamespace(outputs=outputs, batch=SimpleNamespace(targets=targets, layout=None))


@pytest.fixture
def model(randomise):
    def make(encoding="lookhere_90", **options):
        options = {"image_size": 16, "depth": 1, "dim": 48, "heads": 4, "num_classes": 24} | options
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

    def said(model, task, source, split, indices, view, **options):
        asked.append((split, model.knob.value))
        yield one_batch(model.knob.value, len(indices))

    monkeypatch.setattr("sightline.evaluation.tune.predict_split", said)
    task = of_knob(lambda knob: 1 - best.get(knob, 0))
    nearest = min(best, key=lambda value: abs(value - one.knob.default))
    assert tune_knob(one, task, source, range(3), 16) == nearest
    assert {split for split, _ in asked} == {"minival"}
    assert {value for _, value in asked} == {*candidates, one.knob.default}
    best.clear()
    assert tune_knob(one, task, source, range(3), 16) == one.knob.default
    assert one.knob.value == one.knob.default


def test_the_search_asks_the_better_half_again_and_each_image_once(model, monkeypatch):
    one = model()
    candidates = sorted({one.knob.default, *one.knob.candidates}, key=lambda value: abs(value - 0.7))
    asked = {}

    def said(model, task, source, split, indices, view, **options):
        asked.setdefault(model.knob.value, []).extend(indices)
        yield one_batch(model.knob.value, len(indices))

    monkeypatch.setattr("sightline.evaluation.tune.predict_split", said)
    assert tune_knob(one, of_knob(lambda knob: abs(knob - 0.7)), open_source("scenes"), range(40), 16) == 0.7
    few = len(candidates)
    lengths = [len(asked[value]) for value in candidates]
    assert lengths == [40] * -(-few // 4) + [20] * (-(-few // 2) - -(-few // 4)) + [10] * (few - -(-few // 2))
    assert all(len(set(images)) == len(images) for images in asked.values())
    # Spread over the split, whose images may be sorted by class.
    assert max(asked[candidates[-1]]) > 30


def test_a_part_of_the_search_without_a_readable_image_says_nothing(model, monkeypatch):
    """A mean over no image is no number, by which no candidate is better."""
    one = model()

    def said(empty):
        def predict(model, task, source, split, indices, view, **options):
            count = 0 if 0 in indices else len(indices)
            logits = torch.zeros(count, 24)
            logits[:, 0] = -abs(model.knob.value - 0.7)
            if count or empty:
                yield one_batch(logits, {"labels": torch.zeros(count, dtype=torch.int64)})

        return predict

    for empty in (False, True):
        monkeypatch.setattr("sightline.evaluation.tune.predict_split", said(empty))
        assert tune_knob(one, task_of(one), open_source("scenes"), range(3), 16) == 0.7


def test_a_tuned_knob_alone(model):
    """Nothing is measured with the default where a tuned one was asked for, but where there is none."""
    for encoding, tuned in (("lookhere_90", True), ("learned_1d", False)):
        said = []
        config = EvaluateConfig((16,), images=5, knobs="tuned", tune_images=4)
        rows = evaluate(model(encoding=encoding), open_source("scenes"), config, IDENTITY, answers=said)
        assert {row.tuned for row in rows} == {tuned}
        assert len(said) == 5


def test_classes_are_the_models_also_where_the_data_numbers_them_otherwise(model):
    source, found = open_source("scenes"), []
    # The data's class i is the model's labels[i].
    labels = np.roll(np.arange(24), 5)
    moved = tuple(source.classes[number] for number in np.argsort(labels))
    for names in (None, tuple(source.classes), moved):
        one = model(class_names=names)
        # Whatever trained it, it is tuned by the softmax cross entropy.
        for loss in ("ce", "bce"):
            task = task_of(one, {"loss": loss, "label_smoothing": 0.2}).on(source, "scenes")
            parts = predict_split(one, task, source, "minival", range(8), 16)
            sums = [task.tuning_loss(part.outputs, part.batch.targets, part.batch.layout) for part in parts]
            assert sum(count for _, count in sums) == 8
            found.append(float(sum(total for total, _ in sums)) / 8)
    given = said(one, source, "minival", range(8), 16)
    scores = np.exp(given.logits) / np.exp(given.logits).sum(axis=1, keepdims=True)
    expected = -np.log(scores[np.arange(8), labels[given.labels]]).mean()
    assert len({found[number] for number in range(4)}) == 1
    assert found[4] == found[5] == pytest.approx(expected, rel=1e-5)
    assert found[4] != pytest.approx(found[0], rel=1e-3)


def test_no_knob_to_search(model):
    one = model(encoding="learned_1d")
    with pytest.raises(InputError, match="encoding learned_1d has no knob"):
        tune_knob(one, task_of(one), open_source("scenes"), range(3), 16)
