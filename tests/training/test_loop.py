"""The loop: the same weights each time, and nothing that is not finite is ever saved."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import numpy as np
import pytest
import torch

from sightline.data.open import open_source
from sightline.errors import InputError, NonFiniteError
from sightline.hub.load import load_model
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.tensors import load_tensors
from sightline.tasks.classification import Classification
from sightline.training.config import OptimizerConfig
from sightline.training.setup import open_training_data
from tests.tiny import EVENTFUL, TRAINING, log_lines, tiny_config, train, tree, wait_for_saves, weights

SCENES = tiny_config(data="scenes", images=96, batch_size=16)


@pytest.mark.parametrize("config", [EVENTFUL, SCENES], ids=["digits", "scenes"])
def test_the_same_configuration_gives_the_same_weights(config, tmp_path):
    torch.manual_seed(1)
    train(config, tmp_path / "a")
    torch.manual_seed(2)
    train(dataclasses.replace(config, workers=2), tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert log_lines(tmp_path / "a") == log_lines(tmp_path / "b")
    losses = {json.loads(line)["loss"] for line in log_lines(tmp_path / "a")}
    assert len(losses) == len(log_lines(tmp_path / "a"))


@pytest.mark.parametrize("mode", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("fails", [False, True])
def test_the_switches_of_the_caller_are_as_they_were(mode, fails, tmp_path):
    def read():
        asked = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        return *asked, torch.utils.deterministic.fill_uninitialized_memory

    def stop(at):
        raise ZeroDivisionError

    torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])
    before, random, numpy_random = read(), torch.get_rng_state(), np.random.get_state()[1].copy()
    queued = len(torch.cuda._queued_calls)
    try:
        with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
            train(tiny_config(images=32), tmp_path / "a", **({"observe": stop} if fails else {}))
        assert read() == before
        assert torch.equal(torch.get_rng_state(), random)
        assert (np.random.get_state()[1] == numpy_random).all()
        # A GPU that nobody has used yet is not seeded at its first use either.
        assert len(torch.cuda._queued_calls) == queued
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_log_has_a_line_a_step(tmp_path):
    steps = []
    train(EVENTFUL, tmp_path / "a", observe=steps.append)
    lines = [json.loads(line) for line in log_lines(tmp_path / "a")]
    assert [line["step"] for line in lines] == list(range(1, 10))
    # A pass ends with a smaller batch: 5 x 256 + 17.
    assert [line["images"] for line in lines] == [256, 512, 768, 1024, 1280, 1297, 1553, 1809, 1897]
    assert [(at.step, at.steps, at.images, at.total, at.loss) for at in steps] == [
        (line["step"], 9, line["images"], 1897, line["loss"]) for line in lines
    ]


def test_every_image_of_an_epoch_once(tmp_path, monkeypatch):
    source = open_source("digits")
    seen = []

    def example(split, index, image_size, *, seed=0, epoch=0):
        seen.append((epoch, index))
        return type(source).example(source, split, index, image_size, seed=seed, epoch=epoch)

    monkeypatch.setattr(source, "example", example)
    train(tiny_config(images=None, epochs=2.0, batch_size=500), tmp_path / "a", source=source)
    assert sorted(seen) == [(epoch, index) for epoch in (0, 1) for index in range(1297)]
    assert [index for epoch, index in seen if epoch == 0] != [index for epoch, index in seen if epoch == 1]


def test_what_is_saved_is_what_is_returned(tmp_path):
    """With a running mean: the mean, and the weights beside it, differ, and each is where it belongs."""
    model = train(EVENTFUL, tmp_path / "a")
    saved = load_model(tmp_path / "a")
    assert not model.training
    for name, value in saved.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    state = load_tensors(verify_checkpoint(tmp_path / "a" / "checkpoint")[TRAINING])
    assert not torch.equal(state["weights/head.weight"], saved.head.weight)
    assert {name.partition("/")[0] for name in state} == {"exp_avg", "exp_avg_sq", "step", "weights"}


def test_a_loss_that_is_not_finite_is_not_saved(tmp_path, monkeypatch):
    wait_for_saves(monkeypatch)
    losses = []

    real = Classification.loss

    def poisoned(*arguments):
        total, units = real(*arguments)
        losses.append(total)
        return total * (float("nan") if len(losses) == 5 else 1), units

    monkeypatch.setattr(Classification, "loss", poisoned)
    config = tiny_config(images=320, checkpoint_every=32)
    kept = []
    with pytest.raises(NonFiniteError, match=r"^step 5 .* images \d+, "):
        train(config, tmp_path / "a", observe=lambda at: kept.append(weights(tmp_path / "a")))
    assert len(kept) == 4
    assert weights(tmp_path / "a") == kept[-1]
    assert all(bool(value.isfinite().all()) for value in load_model(tmp_path / "a").state_dict().values())


@pytest.mark.parametrize(("lr", "changes"), [(1e20, {}), (3e38, {}), (3e38, {"images": 32})])
def test_a_rate_beyond_all_bounds(lr, changes, tmp_path):
    """Whatever it does to the weights, in the last step too, only finite ones are on disk."""
    optimizer = OptimizerConfig(lr=lr, warmup=0.1 * (not changes))
    config = tiny_config(**{"images": 320, "checkpoint_every": 32, "optimizer": optimizer, **changes})
    with pytest.raises(NonFiniteError, match=r"^step \d+.*optimizer\.lr") as error:
        train(config, tmp_path / "a")
    assert error.value.exit_code == 4
    if (tmp_path / "a" / "checkpoint").exists():
        load_model(tmp_path / "a")


def test_data_that_cannot_be_trained_on(monkeypatch, tmp_path):
    class OneClass(type(open_source("digits"))):
        def __init__(self):
            super().__init__()
            self.classes = ("0",)

    monkeypatch.setattr("sightline.training.setup.open_source", lambda spec: OneClass())
    with pytest.raises(InputError, match=r"^data 'digits'"):
        open_training_data(tiny_config())
    monkeypatch.setattr(OneClass, "__init__", lambda self: setattr(self, "splits", ("test",)))
    with pytest.raises(InputError, match="'train'"):
        train(tiny_config(), tmp_path / "a")
    assert tree(tmp_path) == {}
