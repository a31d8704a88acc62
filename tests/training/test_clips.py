"""Runs on clips: what they show, what is refused, and that one that was stopped ends as if it never was."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.hub.load import load_model
from sightline.io.config import build_config, dump_config
from sightline.training import TrainConfig
from sightline.training.resume_checks import check_same_config
from sightline.training.run import open_run
from sightline.training.setup import resolve, resolve_config
from tests.clips import make
from tests.tiny import MODEL, Stopped, log_lines, stop_at, train, weights

TUBELETS = {"embedder": "tubelets", "embedder_options": {"frames": 2}}
CPU = torch.device("cpu")


def config_of(data: str, **changes: Any) -> TrainConfig:
    config = TrainConfig(
        data=data, model_options={**MODEL, **TUBELETS}, resolution=8, frames=4, images=24, batch_size=4,
        checkpoint_every=4, precision="float32", validation=None,
    )  # fmt: skip
    return dataclasses.replace(config, **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"clips:{make(tmp_path_factory.mktemp('clips'))}"


PACKED = {"packing": {"tokens": 40, "drop": "constant", "drop_options": {"drop": 0.2}}}


@pytest.mark.parametrize("changes", [{}, {"frame_stride": 2}, {"mixing": {"cutmix": 1.0}}, PACKED], ids=str)
def test_a_stopped_run_of_clips_goes_on_bit_for_bit(folder: str, tmp_path: Path, changes: dict[str, Any]) -> None:
    config = build_config(TrainConfig, dump_config(config_of(folder)) | changes, "train")
    train(config, tmp_path / "a")
    with pytest.raises(Stopped):
        train(config, tmp_path / "b", observe=stop_at(3))
    train(dataclasses.replace(config, workers=1), tmp_path / "b", resume=True)
    assert weights(tmp_path / "b") == weights(tmp_path / "a")
    assert log_lines(tmp_path / "b") == log_lines(tmp_path / "a")


def test_a_run_says_how_many_frames_it_saw_and_is_measured_so(tmp_path: Path) -> None:
    train(config_of("moving", images=8, frame_stride=3), tmp_path / "a")
    assert load_model(tmp_path / "a").config.clip_frames == 4
    run = open_run(tmp_path / "a")
    sampling = run.source.sampling
    assert sampling is not None
    assert (sampling.count, sampling.stride, sampling.exact) == (4, 3, True)
    with pytest.raises(InputError, match=r"--resume: .* was trained with frames 4, not 8"):
        check_same_config(dump_config(config_of("moving")), config_of("moving", frames=8), tmp_path / "a")


@pytest.mark.parametrize(
    ("asked", "frames"),
    [
        ({"frames": None}, 8),
        ({"frames": 3}, 3),
        ({"data": "scenes", "frames": None}, 1),
        ({"data": "scenes", "frames": 1}, 1),
    ],
)
def test_frames_are_decided(asked: dict[str, Any], frames: int) -> None:
    config = config_of(**{"data": "moving", **asked})
    resolved = resolve(config, open_source(config.data), CPU)
    assert resolved.frames == frames


def test_frames_are_those_of_the_model_that_a_run_begins_with(tmp_path: Path) -> None:
    train(config_of("moving", images=4, frames=6), tmp_path / "a")
    config = config_of("moving", frames=None, model_options={}, init_from=str(tmp_path / "a"))
    assert resolve(config, open_source("moving"), CPU).frames == 6


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_options": MODEL, "frames": None}, "data moving: is of clips"),
        ({"data": "scenes", "model_options": MODEL}, "frames 4: embedder 'patches'"),
        ({"data": "scenes", "model_options": MODEL, "frames": None, "frame_stride": 2}, "frame_stride 2: embedder"),
        ({"data": "scenes"}, "data scenes: is of images"),
        ({"data": "scenes", "frames": None, "task": "segmentation", "task_options": {"head": "pix"}}, "task segmen"),
    ],
)
def test_what_cannot_be_trained_on_clips_is_refused(changes: dict[str, Any], said: str) -> None:
    config = config_of(**{"data": "moving", **changes})
    with pytest.raises(InputError, match=f"^{said}"):
        resolve_config(config, open_source(config.data), CPU)
