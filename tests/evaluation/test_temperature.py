"""A temperature: the one with the lowest loss, fitted on held-out images alone, and the rows after it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.logits import find_logits, read_logits, rescore, write_logits
from sightline.evaluation.measure import RunInfo, count_images, logits_names
from sightline.evaluation.measures import base
from sightline.evaluation.temperature import MOST, fit_temperature, temperatures_from_logits
from tests.evaluation.models import tiny
from tests.tiny import pictures

AFTER = {"nll_tempered", "brier_tempered", "ece_tempered"}


def nll(logits, labels, temperature):
    """The mean of -log softmax, written out in float64."""
    total = 0.0
    for row, label in zip(np.asarray(logits, float) / temperature, labels, strict=True):
        high = row.max()
        total += high + math.log(np.exp(row - high).sum()) - row[label]
    return total / len(labels)


def bce(logits, labels, temperature):
    """The mean of the binary cross entropies, summed over classes."""
    total = 0.0
    for row, label in zip(np.asarray(logits, float) / temperature, labels, strict=True):
        total += sum(np.logaddexp(0, -one if number == label else one) for number, one in enumerate(row))
    return total / len(labels)


def lowest(loss, *images):
    """By another method than the one on trial."""
    found = minimize_scalar(
        lambda log: loss(*images, math.exp(log)), bounds=(-4.7, 4.7), method="bounded", options={"xatol": 1e-10}
    )
    return math.exp(found.x)


def drawn(seed, images, classes, sure=3.0):
    draw = np.random.default_rng(seed)
    logits = (sure * draw.standard_normal((images, classes))).astype(np.float32)
    chances = np.exp(logits / 2.5)
    labels = [draw.choice(classes, p=row / row.sum()) for row in chances.astype(float)]
    return logits, np.array(labels)


@pytest.mark.parametrize(("images", "classes", "sure"), [(40, 3, 3.0), (700, 10, 5.0), (60, 2, 0.3)])
def test_no_other_temperature_has_a_lower_loss(images, classes, sure):
    logits, labels = drawn(images, images, classes, sure)
    found = fit_temperature(logits, labels, "sigmoid")
    assert (found.split, found.images) == ("minival", images)
    for loss, value in ((nll, found.softmax), (bce, found.sigmoid)):
        assert value == pytest.approx(lowest(loss, logits, labels), rel=1e-5)
        # At the least loss a step to either side is none better.
        assert all(loss(logits, labels, value) <= loss(logits, labels, value * step) for step in (0.999, 1.001))
    assert fit_temperature(logits, labels).sigmoid is None


def test_by_hand():
    """Of two images with a margin of 2 one is right: half is best, at an endless temperature. Of four, three: the
    softmax is 3/4 where the margin over T is log 3."""
    margin = np.array([[2.0, 0.0]] * 4, np.float32)
    assert fit_temperature(margin[:2], np.array([0, 1])).softmax == MOST
    found = fit_temperature(margin, np.array([0, 0, 0, 1])).softmax
    assert found == pytest.approx(2 / math.log(3), rel=1e-9)
    # The margin of sigmoids: log 3 of the first class, -log 3 of the second one.
    apart = np.array([[2.0, -2.0]] * 4, np.float32)
    assert fit_temperature(apart, np.array([0, 0, 0, 1]), "sigmoid").sigmoid == pytest.approx(2 / math.log(3), rel=1e-9)


def test_where_there_is_no_best():
    """All right, all wrong, one class, scores that are all one, one image; and none at all."""
    right = np.array([[9.0, 0.0], [0.0, 9.0]], np.float32)
    assert fit_temperature(right, np.array([0, 1])).softmax == 1 / MOST
    assert fit_temperature(1000 * right, np.array([0, 1])).softmax == 1 / MOST
    assert fit_temperature(right, np.array([1, 0])).softmax == MOST
    assert fit_temperature(np.zeros((3, 1), np.float32), np.zeros(3, np.int64)).softmax == 1
    assert fit_temperature(np.ones((3, 4), np.float32), np.array([0, 1, 3])).softmax == 1
    assert fit_temperature(np.array([[1.0, 2.0]], np.float32), np.array([1]), "sigmoid").softmax == 1 / MOST
    with pytest.raises(InputError, match="minival"):
        fit_temperature(np.zeros((0, 3), np.float32), np.zeros(0, np.int64))


class Watched:
    """A source that says which splits were read, and raises where one of them is."""

    def __init__(self, source, closed=()):
        self.source, self.closed, self.read = source, closed, []

    def __getattr__(self, name):
        return getattr(self.source, name)

    def prepared(self, *args, **options):
        self.source = self.source.prepared(*args, **options)
        return self

    def example(self, split, *args, **options):
        self.read.append(split)
        if split in self.closed:
            raise RuntimeError(f"split {split} was read")
        return self.source.example(split, *args, **options)


def knowing(predict_split):
    """A model with random weights knows nothing, and no temperature helps it: this one is right of three in four."""

    def said(*args, **options):
        for one in predict_split(*args, **options):
            labels = one.batch.targets["labels"]
            outputs = one.outputs.clone()
            outputs[range(len(labels)), labels] += 6.0 * (one.batch.indices % 4 != 0)
            yield dataclasses.replace(one, outputs=outputs)

    return said


@pytest.fixture
def measure(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "predict_split", knowing(base.predict_split))

    def made(data="scenes", link="softmax", source=None, **config):
        """Rows, and the names of the files that were planned; stops where a closed split is read."""
        opened, model = open_source(data), tiny(data, score_link=link)
        asked = {"resolutions": (16,), "images": 23, "precision": "float32", "temperature": True,
                 "temperature_images": 30}  # fmt: skip
        config, identity = EvaluateConfig(**asked | config), RunInfo("name", data, 16, 3)
        source, seen = source or opened, []

        def keep(name, stored):
            write_logits(tmp_path / "kept", name, dataclasses.replace(stored, work="these weights-this work"))

        rows = evaluate(model, source, config, identity, keep=keep, advance=seen.append)
        assert sum(seen) == count_images(source, model, config, 16)
        return rows, logits_names(source, model, config, identity)

    return made


def values(rows, **fields):
    """Of all images, by metric."""
    return {
        row.metric: row for row in rows
        if row.slices.keys() <= {"fitted_on"} and all(getattr(row, key) == one for key, one in fields.items())
    }  # fmt: skip


def test_the_test_split_is_not_read_for_it(measure, tmp_path):
    """What is measured of minival, and the temperature, are there before the first image of test is read: it is closed.
    The rest is of what was stored, with the test's logits out of reach."""
    source = Watched(open_source("scenes"), closed=("test",))
    with pytest.raises(RuntimeError, match="split test"):
        measure(source=source)
    assert source.read.count("minival") == 30
    assert source.read[:30] == ["minival"] * 30
    (file,) = find_logits(tmp_path / "kept")
    stored = read_logits(file)
    expected = fit_temperature(stored.logits, stored.labels)
    rows, names = measure()
    row = values(rows, split="test")["temperature"]
    assert (row.value, row.count, row.slices) == (expected.softmax, 30, {"fitted_on": "minival"})
    # The logits of the test are no file any more, and the temperature is the same.
    (test,) = (name for name in names if name.startswith("test"))
    other = read_logits(tmp_path / "kept" / test)
    (tmp_path / "kept" / test).write_bytes(b"closed")
    assert temperatures_from_logits([file]).of(other) == expected


def test_of_minival_itself_it_is_not_told(measure):
    """There it would flatter."""
    rows, _ = measure(splits=("test", "minival"))
    assert values(rows, split="test").keys() >= AFTER
    assert values(rows, split="minival")["top1"].count == 23
    assert not values(rows, split="minival").keys() & (AFTER | {"temperature"})


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_each_way_of_showing_images_has_its_own_and_stored_logits_give_the_same(link, measure, tmp_path):
    splits = ("test", "heldout_fonts")
    resolutions = (16, 24, View("tokens", 12))
    rows, names = measure(link=link, resolutions=resolutions, knobs="both", tune_images=4, splits=splits)
    assert list(dict.fromkeys(row.split for row in rows)) == ["minival", *splits]
    tested = [row for row in rows if row.split != "minival"]
    ways = {row.measurement for row in tested}
    assert len(ways) == 8
    sigmoid = {"temperature_sigmoid", "ece_sigmoid_tempered"} if link == "sigmoid" else set()
    for way in ways:
        found = values([row for row in tested if row.measurement == way])
        assert found.keys() >= AFTER | sigmoid | {"temperature"}
        assert ("temperature_sigmoid" in found) is (link == "sigmoid")
        assert {row.slices["fitted_on"] for row in found.values() if row.metric in AFTER} == {"minival"}
    assert not {row.value for row in tested if row.metric == "temperature"} & {1, MOST, 1 / MOST}
    # One for each way; the held-out fonts share that of their size, and a knob may be best where it stands.
    ways = {(row.size_label, row.knob, row.value) for row in tested if row.metric == "temperature"}
    assert len(ways) == len({way[:2] for way in ways}) == len({way[2] for way in ways}) >= 4
    files = find_logits(tmp_path / "kept")
    assert sorted(file.name for file in files) == sorted(names)
    fitted = temperatures_from_logits(files)
    again = []
    for file in (tmp_path / "kept" / name for name in names):
        stored = read_logits(file)
        again += rescore(stored, temperature=fitted.of(stored))
    assert again == rows


def test_other_weights_sizes_and_runs_have_another(measure, tmp_path):
    _, names = measure()
    kept = tmp_path / "kept"
    fitted = temperatures_from_logits(kept / name for name in names)
    stored = read_logits(kept / names[-1])
    assert stored.measured["split"] == "test"

    def found(work=stored.work, **changed):
        return fitted.of(dataclasses.replace(stored, work=work, measured={**stored.measured, **changed}))

    assert found() == found("these weights-another") is not None
    others: dict[str, object] = {
        "resolution": 24,
        "run": "other",
        "knob": 0.5,
        "tuned": True,
        "shrunk": 16,
        "seed": 4,
        "data": "other",
        "preparation": "paper",
    }
    others["tuning"] = ({"what": "rule", "value": "bilinear"},)
    for name, value in others.items():
        assert found(**{name: value}) is None, name
    assert found("others-this work") is None


def test_what_cannot_be_is_refused(measure, tmp_path):
    with pytest.raises(InputError, match="minival="):
        measure(pictures(tmp_path / "data"))
    with pytest.raises(InputError, match="temperature_images"):
        EvaluateConfig((16,), temperature_images=0)
