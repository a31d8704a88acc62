"""Runs of masked patch prediction: two ranks and parts of a step are one, packed with dropped patches too."""

from __future__ import annotations

import dataclasses

import pytest

from sightline.data.config import PackingConfig
from tests.ranks import together
from tests.tiny import tiny_config
from tests.training.test_ranks import SGD, alone, assert_alike, run

UNIFORM = tiny_config(task="masked_patches", images=65, batch_size=32, optimizer=SGD, checkpoint_every=33)
PACKED = dataclasses.replace(
    UNIFORM,
    data="scenes",
    task_options={"target": "pixels"},
    images=60,
    encoding="rope_axial+learned_1d",
    packing=PackingConfig(tokens=300, resolutions=(8, 24), drop="constant", drop_options={"drop": 0.3}, most_images=7),
)
CELLS = dataclasses.replace(UNIFORM, task_options={"target": "cells", "cells": 2, "bits": 2})


@pytest.mark.parametrize(
    "config", [UNIFORM, pytest.param(PACKED, marks=pytest.mark.slow), pytest.param(CELLS, marks=pytest.mark.slow)],
    ids=["uniform", "packed", "cells"],
)  # fmt: skip
def test_two_ranks_train_as_one(config, tmp_path):
    """Of the last step of `uniform` and `cells` one rank has no image."""
    alone(config, tmp_path / "one")
    assert together(2, run, config, tmp_path / "two") == [0, 1]
    assert_alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("config", [UNIFORM, PACKED], ids=["uniform", "packed"])
def test_a_step_in_parts_is_the_step(config, tmp_path):
    alone(config, tmp_path / "one")
    alone(dataclasses.replace(config, accumulate=3), tmp_path / "parts")
    assert_alike(tmp_path / "one", tmp_path / "parts")


@pytest.mark.slow
def test_its_loss_falls(tmp_path):
    """Towards what the commonest classes alone would give, within some steps."""
    import json

    config = tiny_config(task="masked_patches", data="digits", images=1600)
    alone(config, tmp_path / "run")
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert losses[0] == pytest.approx(6.24, abs=0.3)
    assert sum(losses[-5:]) / 5 < losses[0] - 2
