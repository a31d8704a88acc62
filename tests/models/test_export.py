"""torch.export with a dynamic batch, height and width: one program for every size (of two patches a side and more)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.export import Dim, export

from sightline.encodings import list_encodings
from sightline.tokens import segment
from sightline.tokens.cache import ByteLRUCache
from tests.contract.contract import PATCH, TRAIN, build, images

pytestmark = pytest.mark.slow
JOINED = ["rope_mixed+learned_1d", "lookhere_90+alibi_2d"]
# The training grid and its transpose among them, on which short cuts would be right for one size alone.
GRIDS = [(6, 9), (3, 5), tuple(TRAIN), (8, 6), (14, 14), (2, 20)]


def exported(model: torch.nn.Module, example: Tensor) -> torch.nn.Module:
    sizes = {0: Dim("batch"), 2: PATCH * Dim("rows", max=512), 3: PATCH * Dim("cols", max=512)}
    return export(model, (example,), dynamic_shapes=(sizes,)).module()


@pytest.mark.parametrize("name", [*list_encodings(), *JOINED])
@pytest.mark.parametrize("example", [(6, 9), tuple(TRAIN)])
@torch.no_grad()
def test_every_encoding_exports_at_any_size(example: tuple[int, int], name: str) -> None:
    model = build(name, "mean", depth=1, dim=48, num_registers=1)
    program = exported(model, images(example))
    for count, grid in enumerate(GRIDS, start=2):
        given = images(grid, count)
        assert (program(given) - model(given)).abs().max() < 1e-5, grid


@pytest.mark.parametrize("pool", ["cls", "attention"])
@torch.no_grad()
def test_each_pooling_exports(pool: str) -> None:
    model = build("lookhere_90", pool, depth=1, dim=48)
    program = exported(model, images((6, 9)))
    for grid in GRIDS:
        assert (program(images(grid, 3)) - model(images(grid, 3))).abs().max() < 1e-5


@torch.no_grad()
def test_an_export_leaves_no_fake_tensor_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ByteLRUCache("a test's", 1 << 14)
    monkeypatch.setattr(segment, "_COORDS", cache)
    model = build("rope_mixed", depth=1, dim=48)
    exported(model, images((6, 9)))
    assert model(images((6, 9))).isfinite().all()
    assert cache
    assert all(type(coords) is Tensor for coords, _ in cache._values.values())


@torch.no_grad()
def test_a_saved_program_runs(tmp_path) -> None:
    model = build("lookhere_45+rope_axial", depth=1, dim=48)
    sizes = {0: Dim("batch"), 2: PATCH * Dim("rows", max=512), 3: PATCH * Dim("cols", max=512)}
    program = export(model, (images((6, 9)),), dynamic_shapes=(sizes,))
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    assert (loaded(images((3, 5))) - model(images((3, 5)))).abs().max() < 1e-5
