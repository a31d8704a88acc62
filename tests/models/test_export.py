"""torch.export with a dynamic batch, height and width: one program for every size (of two patches a side and more)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.export import Dim, export

from tests.contract.contract import PATCH, TRAIN, build, images

pytestmark = pytest.mark.slow
# The training grid and its transpose among them, on which short cuts would be right for one size alone.
GRIDS = [(6, 9), (3, 5), tuple(TRAIN), (8, 6), (14, 14), (2, 20)]


def exported(model: torch.nn.Module, example: Tensor) -> torch.nn.Module:
    sizes = {0: Dim("batch"), 2: PATCH * Dim("rows", max=512), 3: PATCH * Dim("cols", max=512)}
    return export(model, (example,), dynamic_shapes=(sizes,)).module()


@pytest.mark.parametrize("pool", ["cls", "attention"])
@torch.no_grad()
def test_each_pooling_exports(pool: str) -> None:
    model = build("lookhere_90", pool, depth=1, dim=48)
    program = exported(model, images((6, 9)))
    for grid in GRIDS:
        assert (program(images(grid, 3)) - model(images(grid, 3))).abs().max() < 1e-5
