"""What does not learn: a trunk that is frozen under a head, and layers that a head does not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sightline import load_model
from sightline.data.batch import Batch
from sightline.models import Model
from sightline.tasks.base import predict_batch
from sightline.training import TrainConfig, parallel
from tests.tiny import TRAINING, OptimizerConfig, tiny_config, train

TRUNK = {"depth": 2, "dim": 48, "heads": 4, "drop_path": 0.3}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("begun") / "run"
    train(tiny_config(data="scenes:pairs", images=16, batch_size=16, model_options=TRUNK), out)
    return out


def probe(begun: Path, head: str = "linear_map", **changes: Any) -> TrainConfig:
    wanted = {"data": "scenes:pairs", "task": "segmentation", "task_options": {"head": head}, "model_options": {}}
    wanted |= {"images": 48, "batch_size": 16, "checkpoint_every": 16, "init_from": str(begun), "frozen": True}
    return tiny_config(**{**wanted, **changes})


def tensors(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoint" / "model.safetensors")


@pytest.mark.parametrize("head", ["linear_map", "eomt"])
def test_a_frozen_trunk_stays_as_it_was_and_has_no_gradient(
    head: str, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    def watched(model: Model, batch: Batch, precision: str) -> Any:
        tokens = model.embed(batch.inputs.float(), batch.layout)
        modes.append((model.blocks[0].training, model.head.training, tokens.requires_grad))
        return predict_batch(model, batch, precision)

    monkeypatch.setattr(parallel, "predict_batch", watched)
    options = {"head": head, "head_options": {"queries": 4, "blocks": 1} if head == "eomt" else {}}
    config = probe(begun, task_options=options, optimizer=OptimizerConfig(ema=0.5))
    model = train(config, tmp_path / "run")
    assert set(modes) == {(False, True, False)}
    assert all(weight.requires_grad for weight in model.parameters())
    before, after = tensors(begun), tensors(tmp_path / "run")
    assert all(torch.equal(before[name], after[name]) for name in after if not name.startswith("head."))
    state = load_file(tmp_path / "run" / "checkpoint" / TRAINING)
    learnt = {name.partition("/")[2] for name in state if not name.startswith("weights/")}
    assert learnt
    assert all(name.startswith("head.") for name in learnt)
    if head == "linear_map":
        assert after["head.norm.running_mean"].abs().max() > 0
    assert load_model(tmp_path / "run").config.head == head
