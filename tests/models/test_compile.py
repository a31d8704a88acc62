"""torch.compile with several sizes in a row: equal to eager, and not compiled anew for each."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from sightline.tokens import segment
from tests.contract.contract import TRAIN, assert_same_gradients, build, gradients, images, loss_of

pytestmark = pytest.mark.slow
GRIDS = [tuple(TRAIN), (3, 5), (14, 14), (6, 9), (7, 3), (28, 7), (8, 6), (4, 4), (5, 9), (2, 2)]


@pytest.fixture(autouse=True)
def _reset():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["lookhere_90", "rope_mixed", "learned_1d", "learned_2d", "rpe_learned", "factorized"])
def test_graphs_are_few(name: str) -> None:
    """Captured, not translated: as fast as it gets, and the same graphs."""
    model = build(name, "attention", depth=1, dim=48)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, dynamic=True, backend=counter)
    with torch.no_grad():
        for grid in GRIDS:
            assert (compiled(images(grid)) - model(images(grid))).abs().max() < 1e-5, grid
    assert counter.frame_count <= 6
    assert all(type(coords) is torch.Tensor for coords, _ in segment._COORDS._values.values())


@pytest.mark.parametrize("name", ["lookhere_90", "rope_mixed+learned_1d"])
def test_gradients(name: str) -> None:
    model = build(name, depth=1, dim=48).train()
    compiled = torch.compile(model, dynamic=True, backend="aot_eager")
    for grid in GRIDS[:4]:
        found = []
        for one in (compiled, model):
            loss_of(one(images(grid))).backward()
            found.append(gradients(model))
        assert_same_gradients(*found)


def test_sizes_that_are_resized_stay_symbols() -> None:
    model = build("rope_axial", depth=1, dim=48, fit="resize")
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, dynamic=True, backend=counter, fullgraph=True)
    with torch.no_grad():
        for size in [(30, 42), (33, 57), (26, 71), (45, 37), (50, 29)]:
            image = torch.randn(1, 3, *size)
            assert (compiled(image) - model(image)).abs().max() < 1e-5, size
    assert counter.frame_count <= 2
