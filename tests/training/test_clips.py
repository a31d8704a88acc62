"""Runs on clips: what they show, what is refused, and that one that was stopped ends as if it never was."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from sightline.data.open import open_source
from sightline.hub.load import load_model
from sightline.training import TrainConfig
from sightline.training.run import open_run
from sightline.training.setup import resolve
from tests.tiny import MODEL, train

TUBELETS = {"embedder": "tubelets", "embedder_options": {"frames": 2}}
CPU = torch.device("cpu")


def config_of(data: str, **changes: Any) -> TrainConfig:
    config = TrainConfig(
        data=data, model_options={**MODEL, **TUBELETS}, resolution=8, frames=4, images=24, batch_size=4,
        checkpoint_every=4, precision="float32", validation=None,
    )  # fmt: skip
    return dataclasses.replace(config, **changes)


def test_a_run_says_how_many_frames_it_saw_and_is_measured_so(tmp_path: Path) -> None:
    train(config_of("moving", images=8, frame_stride=3), tmp_path / "a")
    assert load_model(tmp_path / "a").config.clip_frames == 4
    run = open_run(tmp_path / "a")
    sampling = run.source.sampling
    assert sampling is not None
    assert (sampling.count, sampling.stride, sampling.exact) == (4, 3, True)


def test_frames_are_those_of_the_model_that_a_run_begins_with(tmp_path: Path) -> None:
    train(config_of("moving", images=4, frames=6), tmp_path / "a")
    config = config_of("moving", frames=None, model_options={}, init_from=str(tmp_path / "a"))
    assert resolve(config, open_source("moving"), CPU).frames == 6
