"""What cannot be trained is refused before anything is written, by the key that is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sightline.data.config import PackingConfig, PatchSizes
from sightline.errors import InputError
from sightline.tasks.classification import Classification
from sightline.training.config import OptimizerConfig
from tests.tiny import MODEL, tiny_config, train
from tests.training.test_goes_on import AUGMENT, CLIPS, DRAWN, GROWING

PAIRS = tiny_config(data="scenes:pairs", augment=AUGMENT)
SIZED = {**DRAWN.model_options, "embedder_options": {"base": 8, "sizes": [4, 8]}}
CLIPS = dataclasses.replace(CLIPS, data="moving")
STILL = {"data": "scenes", "model_options": MODEL}
DENSE = {"task": "segmentation", "task_options": {"head": "pix"}}


@pytest.mark.parametrize(
    ("config", "changes", "key"),
    [
        (tiny_config(), {"optimizer": OptimizerConfig(warmup=3)}, r"optimizer\.warmup 3"),
        (tiny_config(), {"batch_size": None, "packing": PackingConfig(tokens=1)}, r"packing\.tokens 1"),
        (tiny_config(), {"epochs": 2.0, "images": None, "data": "scenes"}, r"epochs 2\.0"),
        (GROWING, {"progressive": (16, 8)}, r"progressive \[16, 8\]"),
        (GROWING, {"progressive": (8, 8)}, r"progressive \[8, 8\]"),
        (GROWING, {"progressive": (0,)}, "progressive"),
        (GROWING, {"progressive": (8, 24)}, r"progressive \[8, 24\]"),
        (GROWING, {"progressive": (10,)}, "progressive: "),
        (GROWING, {"batch_size": None, "packing": PackingConfig(tokens=64)}, r"progressive \[8, 16\]"),
        (DRAWN, {"model_options": MODEL}, "patch_sizes: "),
        (DRAWN, {"patch_sizes": PatchSizes((8, 5))}, "patch_sizes: .*5"),
        (DRAWN, {"model_options": SIZED}, r"patch_sizes\.sizes 6"),
        (CLIPS, {"model_options": MODEL, "frames": None}, "data moving"),
        (CLIPS, STILL, "frames 4"),
        (CLIPS, {**STILL, "frames": None, "frame_stride": 2}, "frame_stride 2"),
        (CLIPS, {"data": "scenes"}, "data scenes"),
        (CLIPS, {"data": "scenes", "frames": None, **DENSE}, "task segmentation"),
        (PAIRS, DENSE, r"augment\.rand_augment"),
        (PAIRS, {"task": "detection", "task_options": {"head": "fcos"}}, r"augment\.rand_augment"),
        (tiny_config(), {"frozen": True}, "frozen true"),
    ],
)
def test_the_key_is_said_and_nothing_is_written(config: Any, changes: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{key}"):
        train(dataclasses.replace(config, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("steps", [0, 1])
def test_a_fault_of_the_user_in_the_first_step_leaves_nothing(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, calls = Classification.loss, []

    def wrong(self: Classification, *given: Any) -> Any:
        calls.append(given)
        if len(calls) > steps:
            raise InputError("its table has another shape")
        return loss(self, *given)

    monkeypatch.setattr(Classification, "loss", wrong)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "notes.txt").touch()
    for out, before in (("run", None), ("kept", {"notes.txt"})):
        calls.clear()
        with pytest.raises(InputError):
            train(tiny_config(images=128), tmp_path / out, trackers=["tensorboard"])
        left = {one.name for one in (tmp_path / out).iterdir()} if (tmp_path / out).exists() else None
        assert left == before if steps == 0 else "config.yaml" in (left or ())
