"""A run on a GPU that was stopped goes on as if it had not been."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sightline.errors import StoppedError
from tests.tiny import ENDLESS, log_lines, train, weights

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("compiled", [False, True])
def test_three_steps_and_three_are_six_bit_for_bit(compiled: bool, device: str, tmp_path: Path) -> None:
    config = dataclasses.replace(ENDLESS, compile=compiled)
    train(config, tmp_path / "whole", device=device)
    steps = iter(range(1, 7))
    with pytest.raises(StoppedError):
        train(config, tmp_path / "parts", device=device, stop=lambda: next(steps) == 3)
    train(config, tmp_path / "parts", device=device, resume=True)
    assert len(log_lines(tmp_path / "parts")) == 6
    assert log_lines(tmp_path / "parts") == log_lines(tmp_path / "whole")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
