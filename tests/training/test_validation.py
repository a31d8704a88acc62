"""The curve on minival while training: it changes nothing, survives a kill, and says which model was the best."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from sightline.data.config import PackingConfig
from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.errors import StoppedError, UnreadableDataError
from sightline.hub.load import load_model, read_config_record
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.run_files import step_folder
from sightline.io.yaml import read_yaml
from sightline.recipes import recipe
from sightline.tasks.base import make_task
from sightline.tasks.classification import classification_loss
from sightline.training import checkpointer
from sightline.training import validation as module
from sightline.training.checkpointer import Checkpointer
from sightline.training.config import TrainConfig, ValidationConfig
from sightline.training.plan import training_plan
from sightline.training.setup import build_model, resolve
from sightline.training.validation import Validation, best_line
from tests.batches import said
from tests.data.three_kinds import KINDS, encoded, images
from tests.tiny import (
    EVENTFUL,
    Stopped,
    after,
    digest,
    finished,
    killed,
    log_lines,
    stop_at,
    tiny_config,
    train,
    tree,
    weights,
)

PLAIN = dataclasses.replace(EVENTFUL, images=1297 + 600, batch_size=64, checkpoint_every=64)
CURVE = dataclasses.replace(PLAIN, validation=ValidationConfig(images=20))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    train(CURVE, out)
    return out


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The same, by a process that has computed nothing before, as those that are killed have not."""
    out = tmp_path_factory.mktemp("fresh")
    finished(train, CURVE, out)
    return out


def curve(out):
    return [json.loads(line) for line in (out / "validation.jsonl").read_text().splitlines()]


def kept(out):
    """All that must be the same, killed or not."""
    best = out / "checkpoint.best"
    step = read_config_record(best)["training"]["step"]
    return {
        "best": (step, digest(best / "model.safetensors")),
        "curve": curve(out),
        "log": log_lines(out),
        "weights": weights(out),
    }


def assert_same(out, other):
    """One after the other, so that a failure says in few words what differs, and from which step on."""
    found, expected = kept(out), kept(other)
    for name in ("curve", "log"):
        differ = [pair for pair in zip(found[name], expected[name], strict=True) if pair[0] != pair[1]]
        assert not differ, f"{name}: {differ[0][0]}, where undisturbed {differ[0][1]}"
    assert found == expected


def test_a_curve_that_changes_no_weight(undisturbed, tmp_path):
    train(PLAIN, tmp_path / "plain")
    assert weights(tmp_path / "plain") == weights(undisturbed)
    assert log_lines(tmp_path / "plain") == log_lines(undisturbed)
    assert not (tmp_path / "plain" / "validation.jsonl").exists()
    lines = curve(undisturbed)
    assert [set(line) for line in lines] == [{"step", "images", "split", "top1", "count", "loss"}] * 10
    steps = {line["step"]: line["images"] for line in map(json.loads, log_lines(undisturbed))}
    assert all(steps[line["step"]] == line["images"] for line in lines)
    assert lines[-1]["step"] == max(steps)
    assert {(line["split"], line["count"]) for line in lines} == {("minival", 20)}


def test_the_mean_of_the_weights_is_what_is_validated(undisturbed):
    source = open_source("digits")
    for folder, line in ((undisturbed, curve(undisturbed)[-1]), (undisturbed / "checkpoint.best", best(undisturbed))):
        model = load_model(folder)
        given = said(model, source, "minival", range(0, 200, 10), 16)
        assert (given.logits.argmax(axis=1) == given.labels).mean() == line["top1"]
        # The loss is that of the training, in the mean over the images.
        total = classification_loss(torch.from_numpy(given.logits), CURVE.loss, 0.0, torch.from_numpy(given.labels))
        assert line["loss"] == pytest.approx(total.item() / 20, rel=1e-5)


def test_val_beside_test_is_validated_on_unasked(tmp_path):
    """As train/val/test folders have it: `val` is `minival` then, and nothing of `train` is held out."""
    given, noise = images(), np.random.default_rng(1)
    test = [(label, f"{label}.png", encoded(noise.integers(0, 256, (20, 20, 3), dtype=np.uint8))) for label in range(3)]
    data = KINDS["imagefolder"](tmp_path / "data", {**given, "test": test})
    config = tiny_config(data=data, images=640, batch_size=8, validation=TrainConfig().validation)
    train(config, tmp_path / "a")
    lines = curve(tmp_path / "a")
    assert 2 <= len(lines) <= 10
    assert {(line["split"], line["count"]) for line in lines} == {("minival", 15)}
    assert read_yaml(tmp_path / "a" / "config.yaml")["validation"] == {"times": 10, "images": 256, "best": None}
    assert (tmp_path / "a" / "checkpoint.best").resolve() == step_folder(tmp_path / "a", best(tmp_path / "a")["step"])
    # Alone it is the test, and the run is validated on it, as timm does.
    alone, warned = KINDS["imagefolder"](tmp_path / "alone", given), []
    train(dataclasses.replace(config, data=alone, images=320), tmp_path / "b", warn=warned.append)
    assert warned == []
    assert {(line["split"], line["count"]) for line in curve(tmp_path / "b")} == {("test", 15)}
    # What its owner calls a test, nothing is chosen on.
    tested = {name: some for name, some in {**given, "test": given["val"]}.items() if name != "val"}
    train(
        dataclasses.replace(config, data=KINDS["imagefolder"](tmp_path / "tested", tested), images=16), tmp_path / "c"
    )
    assert not (tmp_path / "c" / "validation.jsonl").exists()


def best(out):
    return best_line((out / "validation.jsonl").read_text().splitlines())


def test_the_best_is_a_whole_model(undisturbed):
    folder = undisturbed / "checkpoint.best"
    assert {"config.json", "model.safetensors"} <= set(verify_checkpoint(folder))
    assert read_config_record(folder)["training"]["step"] == best(undisturbed)["step"]
    assert best(undisturbed)["top1"] == max(line["top1"] for line in curve(undisturbed))


def dying(name, calls, out):
    """A training that dies in one of its saves."""
    owner = Checkpointer if name == "_link" else checkpointer
    setattr(owner, name, after(calls, getattr(owner, name)))
    train(CURVE, out)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "calls"), [("_point", 1), ("write_checkpoint", 12), ("_link", 14)])
def test_killed_and_resumed_both_are_right(name, calls, fresh, tmp_path):
    killed(dying, name, calls, tmp_path / "a")
    finished(train, CURVE, tmp_path / "a", resume=True)
    assert_same(tmp_path / "a", fresh)
    before = tree(tmp_path / "a")
    finished(train, CURVE, tmp_path / "a", resume=True)
    assert tree(tmp_path / "a") == before


@pytest.mark.slow
def test_stopped_where_it_is_validated_the_curve_is_the_same(undisturbed, tmp_path):
    """A signal that comes in a step whose checkpoint is due anyway costs no point of the curve."""
    at = curve(undisturbed)[2]["step"]
    steps = []

    def stop():
        steps.append(None)
        return len(steps) == at

    with pytest.raises(StoppedError):
        train(CURVE, tmp_path / "a", stop=stop)
    train(CURVE, tmp_path / "a", resume=True)
    assert_same(tmp_path / "a", undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_something_else_in_the_place_of_the_best_one_stays_and_ends_nothing(kind, undisturbed, tmp_path):
    there = tmp_path / "a" / "checkpoint.best"
    (tmp_path / "a").mkdir()
    mine = there if kind == "file" else there / "thesis.tex"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("years of work")
    warnings = []
    train(CURVE, tmp_path / "a", warn=warnings.append)
    assert weights(tmp_path / "a") == weights(undisturbed)
    assert mine.read_text() == "years of work"
    (line,) = warnings
    assert line.startswith(f"{there}: ")
    assert step_folder(tmp_path / "a", best(undisturbed)["step"]).is_dir()


@pytest.mark.slow
def test_a_curve_that_was_deleted_is_there_again(undisturbed, tmp_path):
    with pytest.raises(Stopped):
        train(CURVE, tmp_path / "a", observe=stop_at(20))
    (tmp_path / "a" / "validation.jsonl").unlink()
    warnings = []
    train(CURVE, tmp_path / "a", resume=True, warn=warnings.append)
    assert "validation.jsonl: was missing" in warnings[0]
    assert_same(tmp_path / "a", undisturbed)


@pytest.mark.slow
def test_packed_runs_at_their_own_aspect(tmp_path):
    packing = PackingConfig(tokens=256, resolutions=(8, 20))
    config = dataclasses.replace(CURVE, packing=packing, images=800, resolution=16)
    seen = []
    train(config, tmp_path / "a", observe=seen.append)
    train(dataclasses.replace(config, validation=None), tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    lines = curve(tmp_path / "a")
    assert 1 < len(lines) <= 10
    assert seen[-1].validated is not None
    assert seen[-1].validated.value == lines[-1]["top1"]
    resolved = resolve(config, open_source("digits"), torch.device("cpu"))
    model = build_model(resolved, open_source("digits"))
    task = make_task(resolved.task, model.config)
    assert Validation(resolved, model, task, open_source("digits")).view == View("tokens", 16)


def test_a_short_run_is_validated_at_its_end(tmp_path):
    config = dataclasses.replace(CURVE, images=256, validation=ValidationConfig())
    train(config, tmp_path / "a")
    assert [line["images"] for line in curve(tmp_path / "a")] == [256]


@pytest.mark.slow
def test_what_cannot_be_read_ends_no_run(tmp_path, monkeypatch):
    def unreadable(*_, **__):
        raise UnreadableDataError("1 of 200 images cannot be read")

    monkeypatch.setattr(module, "predict_split", unreadable)
    warnings = []
    train(CURVE, tmp_path / "a", warn=warnings.append)
    assert warnings == ["no validation while training: 1 of 200 images cannot be read"]
    assert "checkpoint.best" not in tree(tmp_path / "a")


@pytest.mark.slow
def test_it_may_be_changed_in_mid_run(tmp_path):
    with pytest.raises(Stopped):
        train(PLAIN, tmp_path / "a", observe=stop_at(20))
    train(CURVE, tmp_path / "a", resume=True)
    assert [line["step"] > 19 for line in curve(tmp_path / "a")].count(True) > 3


def test_a_recipe_is_measured_after_each_pass_as_its_paper_says():
    """LookHere A.4.1: the best of 150 points, one after each epoch; by steps that are planned, not taken."""
    asked = dataclasses.replace(recipe("lookhere_150ep").validation, images=100)
    config = dataclasses.replace(
        PLAIN, images=None, epochs=150.0, batch_size=400, checkpoint_every=None, validation=asked
    )
    source = open_source("digits")
    resolved = resolve(config, source, torch.device("cpu"))
    model = build_model(resolved, source)
    validation = Validation(resolved, model, make_task(resolved.task, model.config), source)
    measured, last = [], 0.0
    for step, _ in training_plan(resolved, model.config, source).steps(0):
        due = step.last or checkpointer.checkpoint_due(step, resolved)
        if due and validation.is_due(step, len(measured), last):
            measured.append(step.after.images)
            last = step.ends
    assert measured == [1297 * passed for passed in range(1, 151)]


@pytest.mark.parametrize(("by", "expected"), [(None, 4), ("top1", 4), ("loss", 8)])
def test_the_best_is_by_what_was_asked(by, expected, monkeypatch, tmp_path):
    """By accuracy the second of four points, by the loss the last but one."""
    points = {2: (0.25, 3.0), 4: (0.75, 2.0), 6: (0.5, math.nan), 8: (0.5, 1.0), 10: (0.25, 1.0)}

    def measure(self, model, step, images):
        top1, lost = points[step]
        return json.dumps({"step": step, "images": images, "split": "minival", "top1": top1, "count": 4, "loss": lost})

    monkeypatch.setattr(Validation, "measure", measure)
    monkeypatch.setattr(Validation, "is_due", lambda *_: True)
    validation = ValidationConfig(images=4, best=by)
    config = dataclasses.replace(EVENTFUL, images=160, batch_size=16, checkpoint_every=32, validation=validation)
    train(config, tmp_path / "a")
    assert read_config_record(tmp_path / "a" / "checkpoint.best")["training"]["step"] == expected
