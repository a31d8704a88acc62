"""The search for an encoding's knob: which candidate it takes, what it asks, and the rows of what it found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.encodings.create import create_encoding
from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.measure import RunInfo, count_images
from sightline.evaluation.measures.base import MeasureInput
from sightline.evaluation.predict import predict_split
from sightline.evaluation.tune import printed_start, searches_of, tune, tune_parameter
from sightline.results.rows import dump_rows, read_rows
from sightline.tasks.base import task_of
from tests.batches import said
from tests.evaluation.models import tiny

IDENTITY = RunInfo("name", "scenes", 16, 0)


def of_knob(loss: Callable[[float], float]) -> Any:
    """A task whose loss of an image is a function of the knob, which is what the stand-ins below give as outputs."""
    return SimpleNamespace(tuning_loss=lambda outputs, targets, layout: (loss(outputs) * targets, targets))


def one_batch(outputs: Any, targets: Any) -> Any:
    return SimpleNamespace(outputs=outputs, batch=SimpleNamespace(targets=targets, layout=None, left_out=()))


def model(encoding="lookhere_90", **options):
    return tiny("scenes", encoding, **{"class_names": None, **options})


def test_the_search_takes_the_best_and_of_equals_the_nearest(monkeypatch):
    one = model()
    source = open_source("scenes")
    candidates = one.knob.candidates
    best = {min(candidates): 0.5, max(candidates): 0.5}
    asked = []

    def said(model, task, source, split, indices, view, **options):
        asked.append((split, model.knob.value))
        yield one_batch(model.knob.value, len(indices))

    monkeypatch.setattr("sightline.evaluation.measures.base.predict_split", said)
    task = of_knob(lambda knob: 1 - best.get(knob, 0))
    nearest = min(best, key=lambda value: abs(value - one.knob.default))
    assert tune_parameter(one, task, source, range(3), 16) == nearest
    assert {split for split, _ in asked} == {"minival"}
    assert {value for _, value in asked} == {*candidates, one.knob.default}
    best.clear()
    assert tune_parameter(one, task, source, range(3), 16) == one.knob.default
    # The last bits, which are the processor's, choose none.
    best[max(candidates)] = 1e-8
    assert tune_parameter(one, task, source, range(3), 16) == one.knob.default
    assert one.knob.value == one.knob.default


def test_the_search_asks_the_better_half_again_and_each_image_once(monkeypatch):
    one = model()
    candidates = sorted({one.knob.default, *one.knob.candidates}, key=lambda value: abs(value - 0.7))
    asked = {}

    def said(model, task, source, split, indices, view, **options):
        asked.setdefault(model.knob.value, []).extend(indices)
        yield one_batch(model.knob.value, len(indices))

    monkeypatch.setattr("sightline.evaluation.measures.base.predict_split", said)
    assert tune_parameter(one, of_knob(lambda knob: abs(knob - 0.7)), open_source("scenes"), range(40), 16) == 0.7
    few = len(candidates)
    lengths = [len(asked[value]) for value in candidates]
    assert lengths == [40] * -(-few // 4) + [20] * (-(-few // 2) - -(-few // 4)) + [10] * (few - -(-few // 2))
    assert all(len(set(images)) == len(images) for images in asked.values())
    # Spread over the split, whose images may be sorted by class.
    assert max(asked[candidates[-1]]) > 30


def test_a_part_of_the_search_without_a_readable_image_says_nothing(monkeypatch):
    """A mean over no image is no number, by which no candidate is better."""
    one = model()

    def predict(model, task, source, split, indices, view, **options):
        count = 0 if 0 in indices else len(indices)
        logits = torch.zeros(count, 24)
        logits[:, 0] = -abs(model.knob.value - 0.7)
        yield one_batch(logits, {"labels": torch.zeros(count, dtype=torch.int64)})

    monkeypatch.setattr("sightline.evaluation.measures.base.predict_split", predict)
    assert tune_parameter(one, task_of(one), open_source("scenes"), range(3), 16) == 0.7


def test_a_tuned_knob_alone():
    """Nothing is measured with the default where a tuned one was asked for, but where there is none."""
    for encoding, tuned in (("lookhere_90", True), ("fourier", False)):
        said = []
        config = EvaluateConfig((16,), images=5, knobs="tuned", tune_images=4)
        rows = evaluate(model(encoding=encoding), open_source("scenes"), config, IDENTITY, answers=said)
        assert {row.tuned for row in rows} == {tuned}
        assert len(said) == 5


def test_classes_are_the_models_also_where_the_data_numbers_them_otherwise():
    source, found = open_source("scenes"), []
    # The data's class i is the model's labels[i].
    labels = np.roll(np.arange(24), 5)
    moved = tuple(source.classes[number] for number in np.argsort(labels))
    for names in (None, tuple(source.classes), moved):
        one = model(class_names=names)
        # Whatever trained it, it is tuned by the softmax cross entropy.
        for loss in ("ce", "bce"):
            task = task_of(one, {"loss": loss, "label_smoothing": 0.2}).bind(source, "scenes")
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


def test_no_knob_to_search():
    one = model(encoding="learned_1d")
    with pytest.raises(InputError, match="learned_1d"):
        tune_parameter(one, task_of(one), open_source("scenes"), range(3), 16)


def test_the_search_begins_where_the_paper_arrived():
    """LookHere's table 9, by the ratio of sizes: trained at 224 px, with a base frequency of 100 and slopes of 1."""
    of = {name: create_encoding(name, depth=1, heads=4, dim=64, train_grid=14) for name in (
        "lookhere_90", "rope_axial", "alibi_2d", "rope_mixed", "learned_1d")}  # fmt: skip
    printed = {"lookhere_90": (0.95, 0.6), "rope_axial": (190.0, 1250.0), "alibi_2d": (1.4, 1.6)}
    for name, (at_384, at_1024) in printed.items():
        assert printed_start(of[name], 384, 16) == at_384
        assert printed_start(of[name], 1024, 16) == at_1024
        # Below and at the training size nothing was searched, beyond the largest size its value holds.
        assert printed_start(of[name], 224, 16) is None
        assert printed_start(of[name], 160, 16) is None
        assert printed_start(of[name], 4096, 16) == at_1024
        assert at_384 in searches_of(of[name], ("knob",), 384, 16)[0].candidates
    # Halfway between two of its sizes, and as many patches of another aspect.
    assert printed_start(of["lookhere_90"], 640, 16) == 0.85
    assert printed_start(of["lookhere_90"], View("tokens", 40 * 40), 16) == 0.85
    assert printed_start(of["lookhere_90"], View("native", 1600), 16) is None
    assert printed_start(of["rope_mixed"], 384, 16) is None
    assert printed_start(of["learned_1d"], 384, 16) is None
    # Times our own default over the paper's.
    wide = create_encoding("rope_axial", depth=1, heads=4, dim=64, train_grid=14, theta=50.0)
    assert printed_start(wide, 384, 16) == 95.0
    both = create_encoding("learned_1d+rope_axial", depth=1, heads=4, dim=64, train_grid=14)
    assert printed_start(both, 384, 16) == 190.0


def test_a_rule_is_searched_where_tables_are_resized(monkeypatch):
    one = model(encoding="learned_1d")
    names = ("bilinear", "bilinear_antialias", "bicubic", "bicubic_antialias", "corner_aligned")
    assert [search.candidates for search in searches_of(one.encoding, ("knob", "rule"), 24, 4)] == [names]
    # On the grid of training all rules are one.
    assert [search.candidates for search in searches_of(one.encoding, ("knob", "rule"), 16, 4)] == [("bilinear",)]
    assert searches_of(one.encoding, ("knob",), 24, 4) == []
    asked = []

    def said(model, task, source, split, indices, view, **options):
        asked.append(model.encoding.resize_rule.value)
        yield one_batch(model.encoding.resize_rule.value, len(indices))

    monkeypatch.setattr("sightline.evaluation.measures.base.predict_split", said)
    loss = {"bicubic": 0.5}
    (search,) = searches_of(one.encoding, ("rule",), 24, 4)
    given = MeasureInput(
        one, of_knob(lambda rule: loss.get(rule, 1.0)), open_source("scenes"), "minival", range(8), 24, ""
    )
    assert tune(given, search) == "bicubic"
    assert set(asked) == set(names)
    assert one.encoding.resize_rule.value == "bilinear"
    assert tune(dataclasses.replace(given, task=of_knob(lambda rule: 1.0)), search) == "bilinear"


def test_rows_say_what_was_searched_and_how(tmp_path):
    one = model(encoding="learned_1d+rope_axial")
    config = EvaluateConfig((16, 24), images=6, knobs="both", tune_images=8, shrink=False, precision="float32")
    asked: list[int] = []
    rows = evaluate(one, open_source("scenes"), config, IDENTITY, advance=asked.append)
    assert sum(asked) == count_images(open_source("scenes"), one, config, 16)
    found = {(row.resolution, row.tuned): row for row in rows if row.metric == "top1" and not row.slices}
    assert found.keys() == {(16, False), (16, True), (24, False), (24, True)}
    assert found[24, False].tuning == () == found[16, False].tuning
    knob, rule = found[24, True].tuning
    assert knob["candidates"] == list(searches_of(one.encoding, ("knob",), 24, 4)[0].candidates)
    assert knob | {"candidates": 0, "value": 0} == {
        "what": "knob", "name": "theta", "value": 0, "default": 100.0, "candidates": 0, "split": "minival", "images": 8,
        "criterion": "softmax cross entropy",
    }  # fmt: skip
    assert (rule["what"], rule["name"], rule["default"]) == ("rule", "interpolation", "bilinear")
    assert rule["value"] in rule["candidates"]
    assert found[24, True].knob == knob["value"]
    assert found[24, True].tuned_label == f"{knob['value']:g}, {rule['value']}"
    assert found[16, True].tuning[1]["candidates"] == ["bilinear"]
    (tmp_path / "rows.jsonl").write_text(dump_rows(rows))
    assert read_rows(tmp_path / "rows.jsonl") == rows
    # What was written before rows said so.
    old = [line for line in dump_rows(rows).splitlines() if "tuning" not in line]
    assert len(old) == sum(not row.tuned for row in rows)


class Guarded:
    """A data set whose test split must not be looked at."""

    def __init__(self, source):
        self.source = source

    def __getattr__(self, name):
        return getattr(self.source, name)

    def prepared(self, *args):
        return Guarded(self.source.prepared(*args))

    def example(self, split, *args, **kwargs):
        assert split != "test", "the search looks at the test split"
        return self.source.example(split, *args, **kwargs)


def test_the_search_never_sees_the_test_split():
    source: Any = Guarded(open_source("digits"))
    one = model(encoding="learned_1d+rope_axial", num_classes=10)
    task = task_of(one).bind(source, "digits")
    for search in searches_of(one.encoding, ("knob", "rule"), 24, 4):
        given = MeasureInput(one, task, source, "minival", range(8), 24, "float32")
        assert tune(given, search) in search.candidates
    # The guard can fail: what is measured afterwards is the test split.
    with pytest.raises(AssertionError, match="test"):
        evaluate(one, source, EvaluateConfig((24,), images=4, knobs="both", tune_images=4), IDENTITY)


def test_what_is_searched_on_is_not_measured_with_what_was_found():
    config = EvaluateConfig((24,), ("minival",), images=4, knobs="both", tune_images=4)
    with pytest.raises(InputError, match="tune"):
        evaluate(model(), open_source("scenes"), config, IDENTITY)
    both = EvaluateConfig((24,), ("test", "minival"), images=4, knobs="both", tune_images=4)
    rows = evaluate(model(), open_source("scenes"), both, IDENTITY)
    assert {(row.split, row.tuned) for row in rows} == {("test", False), ("test", True), ("minival", False)}
