"""Which work is long enough for the forms of attention to be measured first, and of which kinds."""

from __future__ import annotations

import pytest
import torch

from sightline.analysis import long_work
from sightline.analysis.long_work import costs_for
from sightline.attention.costs import Group
from sightline.grid import Grid
from sightline.models.create import model_config
from sightline.ranks import ALONE

MODEL = model_config("vit_micro_patch4", depth=3, dim=48, heads=4, num_classes=5)
SIZES = [(10, Grid(16, 24)), (2, Grid(32, 32))]
# Patches of 4 px: 24 and 64 of an image, each with each, in 3 layers of 4 heads.
PAIRS = (10 * 24**2 + 2 * 64**2) * 4 * 3


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list:
    said: list = []
    monkeypatch.setattr(long_work, "for_long_work", lambda *given: said.append(given) or "the numbers")
    return said


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("training", [False, True])
def test_what_is_asked_for(asked: list, training: bool, precision: str) -> None:
    found = costs_for(MODEL, SIZES, precision=precision, training=training, device=torch.device("cpu"))
    assert found == "the numbers"
    forward, backward = (Group(precision, work, 12) for work in ("forward", "training"))
    expected = [forward, backward] if training else [forward]
    # A backward pass takes twice as long as a forward.
    assert asked == [(expected, PAIRS * (3 if training else 1), ALONE)]


def test_on_a_gpu_nothing_is_long_enough(asked: list) -> None:
    ranks = object()
    costs_for(MODEL, SIZES, precision="float32", device=torch.device("cuda"), ranks=ranks)
    assert asked == [([Group("float32", "forward", 12)], 0, ranks)]
