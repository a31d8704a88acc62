"""Four processes, as two: one gradient of them all, and the run that one process trains."""

from __future__ import annotations

import dataclasses

import pytest
from safetensors.torch import load_file

from sightline.distributed.ranks import Ranks
from sightline.errors import StoppedError
from sightline.training.config import OptimizerConfig
from tests.ranks import together
from tests.tiny import MODEL, log_lines, tiny_config, train
from tests.training.test_ranks import IDLE, PACKED, UNEVEN, assert_alike, gradients, run, stop_after

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("config", [UNEVEN, PACKED], ids=["uneven", "packed"])
def test_one_gradient_of_four(config):
    """To 1e-6 of its norm, in float64 where rounding does not hide a mistake."""
    value, whole = gradients(Ranks(), config)
    for other, found in together(4, gradients, config):
        assert other == pytest.approx(value, rel=1e-9)
        for name, gradient in whole.items():
            difference, norm = abs(found[name] - gradient).max(), abs(gradient).max()
            assert difference <= 1e-6 * norm + 1e-15, name


@pytest.mark.parametrize("config", [IDLE, PACKED], ids=["idle", "packed"])
def test_four_train_as_one(config, tmp_path):
    train(config, tmp_path / "one")
    assert together(4, run, config, tmp_path / "four") == [0, 1, 2, 3]
    assert_alike(tmp_path / "one", tmp_path / "four")


# Of several blocks, whose gradients torch sums in another order once it has seen one backward pass.
DEEP = tiny_config(images=192, model_options={**MODEL, "depth": 4, "dim": 96}, optimizer=OptimizerConfig(lr=0.01))


def held(run):
    """The bits of all tensors of a checkpoint, by file and name; a count of steps, which all ranks have, is written by
    any one of them."""
    found = {}
    for file in (run / "checkpoint").glob("*.safetensors"):
        for name, tensor in load_file(file).items():
            where = "" if name.startswith("optimizer/step/") else file.name
            found[where, name] = tensor.numpy().tobytes()
    return found


@pytest.mark.parametrize("sharing", ["ddp", "fsdp"])
def test_four_go_on_to_the_same_bits(sharing, tmp_path):
    config = dataclasses.replace(DEEP, sharing=sharing)
    assert together(4, run, config, tmp_path / "whole") == [0, 1, 2, 3]
    assert [type(one) for one in together(4, stop_after, config, tmp_path / "a", 3)] == [StoppedError] * 4
    assert len(log_lines(tmp_path / "a")) == 3
    assert together(4, run, config, tmp_path / "a", {"resume": True}) == [0, 1, 2, 3]
    assert log_lines(tmp_path / "a") == log_lines(tmp_path / "whole")
    assert held(tmp_path / "a") == held(tmp_path / "whole") != {}
