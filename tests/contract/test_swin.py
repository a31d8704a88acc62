"""Swin with encodings inside its windows: packed as alone, any grid, gradients, order, kept, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sightline.timm
from sightline.analysis.memory import estimate_memory
from sightline.attention import rotate
from sightline.errors import InputError
from sightline.models.architectures.swin import Swin
from sightline.models.create import create_model, model_config
from sightline.models.flops import forward_flops
from sightline.models.merging import merged
from sightline.models.windows import WindowSpec, windows_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import row_major_index

ENCODINGS = ["rpe_learned", "rope_axial", "rope_mixed", "rope_mixed+rpe_learned", "lookhere_90", "alibi_2d", "none",
             "rpe_learned+learned_1d"]  # fmt: skip
# In pixels: whole windows, one side as long as the window, odd grids, and one that is smaller than the window.
SIZES = [(32, 32), (32, 48), (20, 52), (36, 28), (12, 20)]


def model_of(encoding: str = "rpe_learned", **options) -> Swin:
    torch.manual_seed(0)
    own = {"depths": (2, 2), "heads": (6, 12), "window": 4, **options}
    model = create_model(
        "swin_micro_patch4", dim=24, depth=4, encoding=encoding, num_classes=5, mlp_ratio=1.0, architecture_options=own
    )
    assert isinstance(model, Swin)
    for one in model.parameters():
        torch.nn.init.normal_(one, std=0.3)
    return model.eval()


def images_of(sizes=SIZES) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(3, *size) for size in sizes]


@pytest.mark.parametrize("edges", ["smaller", "padded"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_packed_is_alone_in_any_order_with_gradients(encoding, edges) -> None:
    model, images = model_of(encoding, edges=edges), images_of()

    def gradients(logits: Tensor) -> list[Tensor]:
        weights = [one for one in model.parameters() if one.requires_grad]
        found = torch.autograd.grad(logits.square().sum(), weights, allow_unused=True)
        return [torch.zeros_like(one) if grad is None else grad for one, grad in zip(weights, found, strict=True)]

    packed = model(images)
    alone = torch.cat([model(one.unsqueeze(0)) for one in images])
    assert packed.std() > 0.01
    torch.testing.assert_close(packed, alone, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model(images[::-1]).flip(0), packed, atol=1e-4, rtol=1e-4)
    for one, other in zip(gradients(packed), gradients(alone), strict=True):
        assert (one - other).abs().max() <= 1e-4 * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("encoding", ["rpe_learned", "rope_mixed+rpe_learned", "lookhere_90"])
@pytest.mark.parametrize("grid", [(8, 12), (9, 14), (4, 8)])
def test_a_block_is_a_dense_mask_over_the_image(grid, encoding, shifted) -> None:
    """Attention of the whole image, with the bias of each pair of one window and minus infinity everywhere else."""
    model = model_of(encoding)
    layer, grid = int(shifted), Grid(*grid)
    layout = TokenLayout.uniform(grid, 2, num_prefix_tokens=0)
    attn, encoder = model.blocks[layer].attn, model.encoding
    x = torch.randn(2, grid.cells, 24, requires_grad=True)
    found = attn(x, model.blocks.layer_inputs(layer, x, layout, encoder.hooks))
    cut = attn.stage.cut(grid, shifted=shifted)
    assert any(cut.shift) == (shifted and grid != (4, 8))
    windows = windows_of(layout, [cut]).layout
    q, k, v = attn.qkv(x).unflatten(-1, (3, 6, 4)).permute(2, 0, 3, 1, 4)
    turned = encoder.rotation(layer, layout)
    if turned is not None:
        q, k = rotate(q, turned), rotate(k, turned)
    whole = Grid(*(2 * side for side in grid))
    bias = torch.full((6, grid.cells, grid.cells), -torch.inf)
    pattern = encoder.pattern(layer, windows)
    assert pattern is not None
    table = pattern.tables(cut.size, x.device)[0]
    for window in windows.segments:
        places = window.image_coords[0]
        at = places[:, 0] * grid.cols + places[:, 1]
        dy, dx = (places.unsqueeze(0) - places.unsqueeze(1)).unbind(-1)
        pairs = table[:, dy + cut.size.rows - 1, dx + cut.size.cols - 1]
        bias = bias.index_put((torch.arange(6).view(-1, 1, 1), at.view(1, -1, 1), at.view(1, 1, -1)), pairs)
    assert whole.cells
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    expected = attn.proj(out.transpose(1, 2).flatten(2))
    assert (found - expected).abs().max() < 1e-5 * max(1.0, float(expected.abs().max()))
    given = [x, *attn.parameters(), *(one for one in encoder.stages[0].parameters())]
    both = [torch.autograd.grad(one.square().sum(), given, allow_unused=True) for one in (found, expected)]
    for one, other in zip(*both, strict=True):
        if other is not None:
            assert (one - other).abs().max() < 1e-5 * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("shift", [(0, 0), (2, 1), (0, 2)])
@pytest.mark.parametrize("grids", [[(8, 12)], [(9, 14)], [(5, 3), (9, 14), (8, 4), (9, 14)]])
def test_laid_and_put_back(grids, shift, padded) -> None:
    cut = WindowSpec(Grid(4, 3), shift, padded)
    layout = TokenLayout.packed(grids, num_prefix_tokens=0).pad_to(sum(rows * cols for rows, cols in grids) + 3)
    tokens = F.pad(torch.randn(1, layout.slots - 3, 2), (0, 0, 0, 3))
    windows = windows_of(layout, [cut] * len(grids))
    laid = windows.partition(tokens)
    assert laid.shape[1] == windows.layout.slots
    assert torch.equal(windows.merge(laid), tokens)
    if not padded:
        # Each window's tokens are those that its places name.
        starts = [sum(rows * cols for rows, cols in grids[:number]) for number in range(len(grids))]
        for window, part in zip(windows.layout.segments, windows.layout.split(laid), strict=True):
            assert window.window is not None
            assert window.window.start in starts
            index = row_major_index(window.image_coords[0], window.window.grid) + window.window.start
            assert torch.equal(part[0], tokens[0, index])
    kinds = [one.cache_key for one in windows.layout.segments]
    assert sorted(map(kinds.index, kinds)) == [kinds.index(kind) for kind in kinds]


def test_merging_takes_the_columns_of_each_row_together() -> None:
    model, layout = model_of(), TokenLayout.packed([(3, 4), (2, 2)], num_prefix_tokens=0)
    merge = model.blocks[2].merge
    assert merge is not None
    x = torch.randn(1, layout.slots, 24)
    found, after = merge(x, layout), merged(layout)
    assert [tuple(one.grid) for one in after.segments] == [(2, 2), (1, 1)]
    image = F.pad(x[0, :12].unflatten(0, (3, 4)), (0, 0, 0, 0, 0, 1))
    four = [torch.cat([image[2 * row, 2 * col], image[2 * row + 1, 2 * col], image[2 * row, 2 * col + 1],
                       image[2 * row + 1, 2 * col + 1]]) for row in range(2) for col in range(2)]  # fmt: skip
    expected = merge.reduction(merge.norm(torch.stack(four)))
    torch.testing.assert_close(found[0, :4], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_stages_are_the_features() -> None:
    model, (image, *_) = model_of(), images_of([(36, 28)])
    found = model.forward_intermediates(image.unsqueeze(0), intermediates_only=True)
    assert [tuple(one.shape[1:]) for one in found] == [(24, 9, 7), (48, 5, 4)]
    said = [(one["num_chs"], one["reduction"]) for one in model.feature_info]
    assert said == [(24, 4), (48, 8)]
    with pytest.raises(InputError, match="stages"):
        model.forward_intermediates(image.unsqueeze(0), indices=3)
    with pytest.raises(InputError, match=r"^stop_early: .* of 48 channels, and layer 1 gives 24 .*intermediates_only"):
        model.forward_intermediates(image.unsqueeze(0), indices=[0], stop_early=True)
    model.reset_classifier(0)
    assert model.num_features == 48


@torch.no_grad()
def test_timm_s_features_are_the_stages() -> None:
    """All of them unasked, as of timm's own Swin."""
    images, timm = torch.randn(1, 3, 64, 48), sightline.timm.timm
    for asked, widths in (({}, [96, 192]), ({"out_indices": (0,)}, [96]), ({"out_indices": (-1,)}, [192])):
        made = timm.create_model("sightline_swin_micro_patch4", features_only=True, **asked)
        features: Any = made.eval()
        assert features.feature_info.channels() == [one.shape[1] for one in features(images)] == widths
    assert features.feature_info.reduction() == [8]
    assert features(images)[0].shape[2:] == (8, 6)
    axial = timm.create_model("sightline_axial_vit_micro_patch4", features_only=True)
    assert [one.shape[1:] for one in axial(images)] == [(192, 16, 12)] * 3


def test_counted() -> None:
    """Swin-T's 4.5 billion multiplications (Swin table 1), and memory that grows with the patches, not their square."""
    config = model_config("swin_tiny_patch4_window7")
    assert round(forward_flops(config, [56**2]) / 2e9, 1) == 4.5
    small, large = (estimate_memory(config, size, training=True) for size in (224, 896))
    assert 12 < large.activations / small.activations < 17
    assert small.parameters == 4 * 28_288_354
    # What is made of queries and keys is there for a moment in windows too.
    content = [
        estimate_memory(config.replace(encoding=name), 224, training=True) for name in ("none", "irpe", "irpe_qkv")
    ]
    assert content[0].attention == 0 < content[1].attention < content[2].attention
