"""Swin with encodings inside its windows: packed as alone, any grid, gradients, order, kept, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sightline.timm
from sightline.analysis import analysed_together
from sightline.analysis.measures.tokens import TokenNorms
from sightline.analysis.memory import estimate_memory
from sightline.attention import rotate
from sightline.attention.dispatch import AttentionRecord, record_attention
from sightline.data.config import PackingConfig
from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.export.checks import check_exportable
from sightline.hub.fine_tune import init_model_from
from sightline.hub.load import load_model, save_model
from sightline.models.architectures.swin import Swin
from sightline.models.create import create_model, model_config
from sightline.models.flops import forward_flops
from sightline.models.merging import merged
from sightline.models.windows import WindowSpec, windows_of
from sightline.runs.analyse import _that_fit as measures_that_fit
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import row_major_index
from sightline.training.setup import build_model
from tests.tiny import tiny_config

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
def test_saved_and_loaded(tmp_path) -> None:
    model, images = model_of("rope_mixed+rpe_learned", window_grows=True), images_of()
    model.set_knob(20.0)
    save_model(model, tmp_path / "kept")
    again = load_model(tmp_path / "kept")
    assert Swin.options_of(again.config) == Swin.options_of(model.config)
    assert torch.equal(again(images), model(images))
    assert model.encoding.stages[1].knob.value == again.encoding.stages[1].knob.value == 20.0


@torch.no_grad()
def test_windows_that_grow_and_windows_that_are_set() -> None:
    grows = model_of("rope_axial", window_grows=True)
    sizes = [grows.blocks[0].attn.stage.cut(Grid(*grid), shifted=True) for grid in
             ((8, 8), (16, 16), (37, 37), (4, 16))]  # fmt: skip
    assert [tuple(one.size) for one in sizes] == [(4, 4), (8, 8), (19, 19), (4, 4)]
    assert [one.shift for one in sizes] == [(2, 2), (4, 4), (9, 9), (0, 0)]
    model, (image, *_) = model_of(), images_of([(64, 64)])
    before = model(image.unsqueeze(0))
    model.set_input_size(64, window_size=8)
    assert model.config.train_grid == (8, 8)
    assert not torch.allclose(model(image.unsqueeze(0)), before, atol=1e-3)
    model.set_input_size(32, window_size=4)
    assert torch.equal(model(image.unsqueeze(0)), before)


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


@pytest.mark.parametrize(("asked", "stages"), [({}, [0, 1]), ({"out_indices": [0]}, [0]), ({"out_indices": 1}, [1]),
                                               ({"out_indices": (-1, 0)}, [0, 1])])  # fmt: skip
@torch.no_grad()
def test_timm_s_features_count_stages(asked, stages) -> None:
    """A model that timm prunes gives the maps of the whole one, and says whose they are."""
    torch.manual_seed(0)
    own = {"encoding": "rope_mixed+rpe_learned", "embed_dim": 24, "num_classes": 5}
    whole = sightline.timm.timm.create_model("sightline_swin_micro_patch4", **own).eval()
    pruned = sightline.timm.timm.create_model("sightline_swin_micro_patch4", features_only=True, **own, **asked).eval()
    pruned.model.load_state_dict(whole.state_dict(), strict=False)
    (image, *_) = images_of([(36, 28)])
    expected = whole.forward_intermediates(image.unsqueeze(0), intermediates_only=True)
    found = pruned(image.unsqueeze(0))
    assert len(found) == len(stages)
    assert all(torch.equal(one, expected[stage]) for one, stage in zip(found, stages, strict=True))
    assert pruned.feature_info.channels() == [24 * 2**stage for stage in stages]
    assert pruned.feature_info.reduction() == [4 * 2**stage for stage in stages]
    assert len(pruned.model.blocks) == (6 if 1 in stages else 2)


@torch.no_grad()
def test_a_stage_that_was_pruned_takes_what_reads_it_along() -> None:
    model, (image, *_) = model_of(), images_of([(36, 28)])
    kept = model.forward_intermediates(image.unsqueeze(0), intermediates_only=True)[0]
    assert model.prune_intermediate_layers([0], prune_head=False) == [0]
    assert model.num_features == 24
    last, maps = model.forward_intermediates(image.unsqueeze(0))
    assert torch.equal(maps[0], kept)
    assert torch.equal(last, kept.flatten(2).transpose(1, 2))
    assert torch.equal(model(image.unsqueeze(0)), last)


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


def test_the_command_refuses_stages_once(capsys) -> None:
    with pytest.raises(InputError, match="its stages have other heads"):
        measures_that_fit(model_of(), "a", {}, [TokenNorms], {}, lambda _: None, explicit=False)
    assert capsys.readouterr().err == ""


def test_attention_is_seen_in_windows_alone() -> None:
    model, seen = model_of(), []
    with record_attention(lambda one: seen.append(one)), torch.no_grad():
        model(torch.randn(1, 3, 36, 28))
    assert all(isinstance(one, AttentionRecord) and max(one.keys.seqlens) <= 16 for one in seen)
    assert [one.layer for one in seen] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"pool": "cls"}, "class token"),
        ({"pool": "attention", "class_token": False}, "expected 'mean'"),
        ({"num_registers": 2}, "num_registers 2"),
        ({"depth": 5}, "depth 5: architecture swin has 6"),
        ({"heads": 3}, "heads 3: architecture swin has 6"),
        ({"architecture_options": {"depths": (2, 4), "heads": (6,)}}, "expected as many"),
        ({"architecture_options": {"windows": 7}}, "did you mean 'window'"),
        ({"architecture_options": {"depths": (2, 4), "heads": (6, 12), "edges": "pad"}}, "edges"),
        ({"architecture_options": {"depths": (2, 4), "heads": (6, 12), "window_grows": 1}}, "true or false"),
        ({"head": "upernet"}, "merged"),
        ({"mask_token": True}, "mask_token"),
        ({"encoding": "learned_1d_every"}, "^encoding learned_1d_every: at 'every': stages .* .expected 'input'.$"),
        ({"encoding": "rope_axial+learned_xy_shared"}, "^encoding learned_xy_shared: at 'shared'"),
        ({"encoding": "fourier+learned_1d", "encoding_options": {"fourier.at": "every"}}, "at 'every'"),
    ],
)  # fmt: skip
def test_refused_in_one_line(fields, match) -> None:
    with pytest.raises(InputError, match=match) as caught:
        create_model("swin_micro_patch4", **fields)
    assert "\n" not in str(caught.value)


def test_options_of_the_architecture_change_those_of_the_registered_model() -> None:
    """One that is given leaves the others as they are: a window needs no depths and heads beside it."""
    own = {"depths": [2, 4], "heads": [6, 12], "window": 4}
    assert model_config("swin_micro_patch4", architecture_options={"window": 2}).architecture_options == {
        **own, "window": 2,
    }  # fmt: skip
    grows = model_config("swin_micro_patch4", architecture_options={"window_grows": True})
    assert grows.architecture_options == {**own, "window_grows": True}
    model = init_model_from(create_model("swin_micro_patch4"), architecture_options={"edges": "padded"})
    assert model.config.architecture_options == {**own, "edges": "padded"}
    # Of another architecture they are its own.
    assert model_config(
        "swin_micro_patch4", architecture="axial", architecture_options={"first": "rows"}
    ).architecture_options == {"first": "rows"}
    with pytest.raises(InputError, match="architecture vit: option 'window' is not known"):
        create_model("vit_micro_patch4", depth=1, architecture_options={"window": 2})
    with pytest.raises(InputError, match="architecture_options = 3: expected a group of keys"):
        model_config("swin_micro_patch4", architecture_options=3)


def test_dropped_patches_are_refused_before_the_first_step() -> None:
    """A schedule may drop none for long."""
    drop = PackingConfig(tokens=64, drop="schedule", drop_options={"least": 0.0})
    config = tiny_config(model="swin_micro_patch4", model_options={}, encoding="rpe_learned", packing=drop)
    with pytest.raises(InputError, match=r"packing.drop schedule: architecture swin takes whole images"):
        build_model(config, open_source("digits"))


def test_what_is_done_with_other_models_and_refused_here() -> None:
    model = model_of()
    with pytest.raises(InputError, match="every size"):
        check_exportable(model, "torch")
    with pytest.raises(InputError, match="stages"):
        analysed_together(model, [TokenNorms], torch.randn(1, 3, 32, 32))
    rows, layout = model.cut(torch.randn(1, 3, 32, 32))
    kept = torch.arange(8).unsqueeze(0)
    with pytest.raises(InputError, match="whole images"):
        model(rows[:, :8], layout.keep(kept))


@pytest.mark.parametrize("name", ["swin_micro_patch4", "axial_vit_micro_patch4"])
def test_no_patch_is_dropped_where_all_are_needed_and_that_is_said_before_the_first_step(name) -> None:
    """A schedule may drop none for long."""
    dropping = tiny_config(
        model=name, model_options={}, packing=PackingConfig(tokens=64, resolutions=(8, 32), drop="schedule")
    )
    with pytest.raises(InputError, match=r"^packing.drop schedule: architecture .* takes whole images .expected null"):
        build_model(dropping, open_source("digits"))


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
