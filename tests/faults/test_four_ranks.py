"""Four processes, as two: one gradient of them all, and the run that one process trains."""

from __future__ import annotations

import pytest
import torch

from sightline.ranks import Ranks
from tests.ranks import together
from tests.training.test_ranks import IDLE, PACKED, UNEVEN, alone, assert_alike, gradients, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("config", [UNEVEN, PACKED], ids=["uneven", "packed"])
def test_one_gradient_of_four(config):
    """To 1e-6 of its norm, in float64 where rounding does not hide a mistake."""
    value, whole = gradients(Ranks(), config, torch.float64)
    for other, found in together(4, gradients, config, torch.float64):
        assert other == pytest.approx(value, rel=1e-9)
        for name, gradient in whole.items():
            difference, norm = abs(found[name] - gradient).max(), abs(gradient).max()
            assert difference <= 1e-6 * norm + 1e-15, name


@pytest.mark.parametrize("config", [IDLE, PACKED], ids=["idle", "packed"])
def test_four_train_as_one(config, tmp_path):
    alone(config, tmp_path / "one")
    assert together(4, run, config, tmp_path / "four") == [0, 1, 2, 3]
    assert_alike(tmp_path / "one", tmp_path / "four")
