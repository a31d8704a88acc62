"""Axial models hold what every model holds: rows and columns are images, and what that leaves out is refused."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.analysis.memory import estimate_memory
from sightline.attention import record_attention
from sightline.attention.sdpa import SdpaCall
from sightline.export import export_model
from sightline.models import Model, create_model
from sightline.models.architectures.axial import AxialTransformer
from sightline.models.block import LayerInputs
from sightline.models.flops import forward_flops
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import PATCH, TRAIN, assert_same_gradients, assert_spread, build, gradients, loss_of
from tests.export.models import assert_the_same

GRIDS = [(3, 5), (7, 2), (1, 1), tuple(TRAIN), (5, 3), (1, 6), (7, 2)]
ENCODINGS = ["none", "learned_1d", "factorized", "sincos_2d", "rope_axial", "rope_dinov3", "rope_mixed+learned_1d"]
BIASED = ["alibi_2d", "lookhere_90", "lookhere_45", "rpe_learned", "rpe_learned_shared"]


def axial(encoding: str = "rope_axial", pool: str = "mean", **options) -> Model:
    return build(encoding, pool, architecture="axial", class_token=False, **{"depth": 3, **options})


def images(grids=GRIDS) -> list[Tensor]:
    return [torch.randn(3, PATCH * rows, PATCH * cols) for rows, cols in grids]


# A pooling hangs on no encoding.
POOLED = [(encoding, pool) for encoding in ("learned_1d", "lookhere_90") for pool in ("first", "attention", "query")]


@pytest.mark.parametrize(("encoding", "pool"), [*((name, "mean") for name in ENCODINGS + BIASED), *POOLED])
def test_packed_is_single(encoding: str, pool: str) -> None:
    model, given = axial(encoding, pool), images()
    alone = torch.cat([model(image[None]) for image in given])
    assert_spread(alone.detach())
    loss_of(alone).backward()
    expected = gradients(model)
    for order in (range(len(given)), [3, 0, 6, 4, 2, 1, 5]):
        packed = model([given[number] for number in order])
        assert (packed - alone[list(order)]).abs().max() < 1e-5
        loss_of(packed).backward()
        assert_same_gradients(gradients(model), expected)
    layout = TokenLayout.packed(GRIDS[:2], num_prefix_tokens=0).pad_to(40)
    rows = torch.cat([model.cut([given[0]])[0], model.cut([given[1]])[0]], dim=1)
    padded = model(F.pad(rows, (0, 0, 0, 40 - rows.shape[1]), value=torch.nan), layout)
    assert (padded - alone[:2]).abs().max() < 1e-5


@pytest.mark.parametrize("first", ["rows", "columns"])
@pytest.mark.parametrize("encoding", ["none", "rope_axial", "rope_mixed", *BIASED])
def test_a_layer_is_a_dense_mask_over_the_image(encoding: str, first: str) -> None:
    """Tokens of one row meet, then those of one column, at the angles and the bias that the whole image has there."""
    model = axial(encoding, architecture_options={"first": first})
    x = torch.randn(2, TRAIN.cells, model.config.dim, requires_grad=True)
    layout = TokenLayout.uniform(TRAIN, 2, num_prefix_tokens=0)
    found = model.blocks(x, layout, model.encoding)
    place = layout.coords[0]
    expected = x
    for layer in range(len(model.blocks)):
        axis = (layer + (first == "columns")) % 2
        meets = place[:, None, axis] == place[None, :, axis]
        bias = torch.zeros(1, 1, TRAIN.cells, TRAIN.cells)
        pattern = model.encoding.pattern(layer, layout)
        if pattern is not None:
            bias = pattern.bias(layout.segments[0], layout.segments[0], 0, 0)
        bias = bias.masked_fill(~meets, -torch.inf)
        hooks = model.encoding.hooks
        added, turned = hooks.added(layer, layout), hooks.rotation(layer, layout)
        inputs = LayerInputs(SdpaCall(bias), None if turned is None else turned.tensors())
        expected = model.blocks[layer](expected if added is None else expected + added, inputs)
    assert (found - expected).abs().max() < 1e-5
    assert (found - x).abs().max() > 0.1
    theirs, ours = (
        torch.autograd.grad(one.square().sum(), [x, *model.blocks.parameters()]) for one in (expected, found)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).abs().max() <= 1e-4 * max(1.0, float(other.abs().max()))


def test_rows_and_columns_are_what_attention_is_shown() -> None:
    shown = []
    model = axial(depth=4)
    with record_attention(shown.append):
        model(images(GRIDS[:2]))
    for call, axis in zip(shown, itertools.cycle((0, 1))):
        for segment in call.keys.segments:
            assert segment.grid[axis] == 1
            assert segment.patches == segment.window.grid[1 - axis]
    assert shown[0].keys is shown[2].keys, "lines are cut once for all layers"


def test_dropping_a_path_hangs_on_the_image() -> None:
    """Chance is an image's, not a row's: by its seed, alone or packed."""
    model = axial(drop_path=0.5, depth=6).train()
    rows, layout = model.cut(images(GRIDS[:4]))
    seeds = [3, 5, 7, 11]
    packed = model(rows, layout.with_seeds(seeds))
    alone = [
        model(part, TokenLayout.uniform(grid, 1, num_prefix_tokens=0).with_seeds([seed]))
        for part, grid, seed in zip(rows.split([r * c for r, c in GRIDS[:4]], 1), GRIDS, seeds, strict=False)
    ]
    assert (packed - torch.cat(alone)).abs().max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["rope_mixed+learned_1d", "lookhere_90"])
def test_exported(encoding: str, tmp_path) -> None:
    model = axial(encoding, depth=2, dim=48)
    export_model(model, tmp_path / "m.pt2", to="torch")
    assert_the_same(tmp_path / "m.pt2", model)


def test_counted() -> None:
    """Of each query the keys of its row, then of its column."""
    config = create_model("axial_vit_micro_patch4", image_size=(32, 64), encoding="lookhere_90").config
    plain = config.replace(architecture="vit", class_token=False)
    rows, cols = config.train_grid
    cells = rows * cols
    (stage,), (whole,) = AxialTransformer.stages(config), Model.stages(plain)
    assert whole.work(cells).pairs == config.depth * cells**2
    assert stage.work(cells, config.train_grid).pairs == config.depth // 2 * cells * (rows + cols)
    saved = 4 * config.attention_width * (config.depth * cells**2 - stage.work(cells).pairs)
    assert forward_flops(plain, [cells]) - forward_flops(config, [cells]) == saved
    for training in (False, True):
        less, more = (estimate_memory(one, (256, 512), training=training) for one in (config, plain))
        assert less.attention < more.attention
        assert less.parameters == more.parameters
