"""Tables against the projects that they come from: as they are to 1e-6, resized to 1e-5."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.encodings import create_encoding
from sightline.tokens.grid import Grid
from tests.parity.golden_files import golden, grid_of, keys, weights

AS_IT_IS = 1e-6
RESIZED = 1e-5

SINCOS_ORDERS = {"bigvision": "big_vision", "simplevit": "big_vision", "mae": "mae"}


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.dtype == torch.float32
    assert ours.shape == theirs.shape
    assert (ours.double() - theirs.double()).abs().max() <= tolerance


def set_values(parameter: torch.nn.Parameter, values: Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(values.reshape(parameter.shape))


@pytest.mark.parametrize("key", keys("alibi2d_croma"))
def test_alibi(key: str) -> None:
    _, heads, grid = key.split(".")
    count = int(heads.removeprefix("h"))
    encoding = create_encoding("alibi_2d", depth=2, heads=count, dim=4 * count)
    theirs = golden("alibi2d_croma")[key][0]
    for layer in range(2):
        assert_close(encoding.bias_matrix(grid_of(grid), layer=layer, num_prefix_tokens=0), theirs, AS_IT_IS)


@pytest.mark.parametrize("key", keys("sincos2d_tables"))
def test_sincos(key: str) -> None:
    project, grid, width = key.split(".")
    dim = int(width.removeprefix("w"))
    theirs = golden("sincos2d_tables")[key].reshape(-1, dim)
    if project == "mae_cls":
        # Its CLS row is zero: so is what our layout joins at prefix slots.
        assert not theirs[0].any()
        project, theirs = "mae", theirs[1:]
    encoding = create_encoding("sincos_2d", depth=1, heads=1, dim=dim, order=SINCOS_ORDERS[project])
    assert_close(encoding.embedding(grid_of(grid)), theirs, AS_IT_IS)


@pytest.mark.parametrize("key", keys("timm_sincos_fourier_rope_tables", "sincos2d"))
def test_sincos_of_timm(key: str) -> None:
    name, grid = key.split(".")
    order = {"sincos2d": "timm", "sincos2d_interleave": "timm_interleaved"}[name]
    encoding = create_encoding("sincos_2d", depth=1, heads=1, dim=32, order=order)
    assert_close(encoding.embedding(grid_of(grid)), golden("timm_sincos_fourier_rope_tables")[key], AS_IT_IS)


@pytest.mark.parametrize("order", ["big_vision", "mae", "timm", "timm_interleaved"])
def test_sincos_orders_differ_and_have_a_temperature(order: str) -> None:
    others = {"big_vision", "mae", "timm", "timm_interleaved"} - {order}
    one = create_encoding("sincos_2d", depth=1, heads=1, dim=32, order=order).embedding((3, 5))
    for other in others:
        assert (
            create_encoding("sincos_2d", depth=1, heads=1, dim=32, order=other).embedding((3, 5)) - one
        ).abs().max() > 0.1
    cooler = create_encoding("sincos_2d", depth=1, heads=1, dim=32, order=order, temperature=100.0).embedding((3, 5))
    assert (cooler - one).abs().max() > 0.1


@pytest.mark.parametrize("key", keys("timm_resample", "resample."))
def test_resized_embedding(key: str) -> None:
    _, grid, mode, antialias = key.split(".")
    rule = mode + ("_antialias" if antialias == "aa1" else "")
    table, theirs = golden("timm_resample")["pos_embed"][0], golden("timm_resample")[key][0]
    encoding = create_encoding("learned_1d", depth=1, heads=1, dim=8, train_grid=(4, 4), interpolation=rule)
    set_values(encoding.table, table[1:])
    set_values(encoding.prefix, table[:1])
    assert_close(encoding.embedding(grid_of(grid)).detach(), theirs[1:], RESIZED)
    assert torch.equal(encoding.prefix_embedding(), theirs[:1])


@pytest.mark.parametrize("key", keys("timm_resample", "resample_from3x5."))
def test_resized_embedding_from_a_rectangle(key: str) -> None:
    grid = grid_of(key.split(".")[1])
    encoding = create_encoding(
        "learned_1d", depth=1, heads=1, dim=8, train_grid=(3, 5), prefix=False, interpolation="bicubic_antialias"
    )
    set_values(encoding.table, golden("timm_resample")["pos_embed_rect3x5"])
    assert_close(encoding.embedding(grid).detach(), golden("timm_resample")[key][0], RESIZED)


def test_interpolations_differ() -> None:
    """The rule is part of the weights: with another one the table is another, also where it grows."""
    table = golden("timm_resample")["pos_embed"][0, 1:]
    results = []
    for rule in ("bilinear", "bicubic", "bicubic_antialias", "corner_aligned"):
        encoding = create_encoding("learned_1d", depth=1, heads=1, dim=8, train_grid=(4, 4), interpolation=rule)
        set_values(encoding.table, table)
        results.append(encoding.embedding((8, 8)).detach())
    for index, one in enumerate(results):
        for other in results[index + 1 :]:
            assert (one - other).abs().max() > 0.1


def test_corner_aligned_keeps_the_corners() -> None:
    """big_vision's zoom of order 1: linear from corner to corner."""
    encoding = create_encoding("learned_1d", depth=1, heads=1, dim=8, train_grid=(3, 3), interpolation="corner_aligned")
    old, new = encoding.table.view(3, 3, 8), encoding.embedding((5, 7)).view(5, 7, 8)
    for corner in [(0, 0), (0, -1), (-1, 0), (-1, -1)]:
        assert_close(new[corner].detach(), old[corner].detach(), AS_IT_IS)
    assert_close(new[1, 0].detach(), (old[0, 0] + old[1, 0]).detach() / 2, AS_IT_IS)


@pytest.mark.parametrize("key", keys("timm_relpos_resize", "resized."))
def test_resized_beit_table(key: str) -> None:
    table, theirs = golden("timm_relpos_resize")["table"], golden("timm_relpos_resize")[key]
    encoding = create_encoding("rpe_learned", depth=1, heads=4, dim=16, train_grid=(4, 4))
    set_values(encoding.tables, table)
    resized = encoding.resized(encoding.tables[0][:-3], Grid(*grid_of(key.split(".")[1])))
    assert_close(resized.detach(), theirs[:-3], RESIZED)


@pytest.mark.parametrize("shape", ["train", "big", "rect"])
@pytest.mark.parametrize("file", ["timm_beit_rpb", "timm_beit_shared_rpb"])
def test_beit_bias(file: str, shape: str) -> None:
    shared = file == "timm_beit_shared_rpb"
    encoding = create_encoding("rpe_learned", depth=2, heads=3, dim=48, train_grid=(4, 4), shared=shared)
    state = weights(file)
    names = ["rel_pos_bias"] if shared else [f"blocks.{layer}.attn" for layer in range(2)]
    set_values(encoding.tables, torch.stack([state[f"{name}.relative_position_bias_table"] for name in names]))
    grid = {"train": (4, 4), "big": (6, 6), "rect": (4, 7)}[shape]
    theirs = golden(file)[f"bias.{shape}"].reshape(3, 1 + grid[0] * grid[1], -1)
    ours = encoding.bias_matrix(grid).detach()
    assert_close(ours, theirs, AS_IT_IS if shape == "train" else RESIZED)
    if shared:
        assert torch.equal(encoding.bias_matrix(grid, layer=1), ours)
    if shape == "train":
        index = golden(file)["index.train"]
        assert torch.equal(encoding.tables[0][index].permute(2, 0, 1), ours)
