"""LookHere's bias against the public code, bit for bit: -0.0 is not 0.0."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.attention.pattern import BFLOAT16_MAX
from sightline.encodings import create_encoding
from tests.parity.golden_files import golden, grid_of, keys

FILES = {
    "LH180": "halves-diagonals-none",
    "LH90": "corners-triangles-none",
    "LH90b": "triangles-corners-none",
    "LH45": "eighths1-eighths2-none",
}
PRESET_NAMES = {"LH180": "lookhere_180", "LH90b": "lookhere_90", "LH45": "lookhere_45"}
ABLATED = "corners-triangles-none"
ABLATIONS = {
    "fill_zero": {"fill": "zero"},
    "fill_max": {"fill": "max"},
    "slopes_inverted": {"layer_slopes": (0.5, 1.5)},
    "slopes_constant": {"layer_slopes": (1.0, 1.0)},
    "perlayer_list": {"directions": ["halves-diagonals-none", "eighths1-eighths2-none"]},
}


def lookhere(heads: int, directions, *, name: str = "lookhere", depth: int = 2, **options):
    if name == "lookhere":
        options = {"directions": directions, **options}
    return create_encoding(name, depth=depth, heads=heads, dim=4 * heads, **options)


def assert_same_bits(ours: Tensor, theirs: Tensor) -> None:
    assert ours.dtype == torch.float32
    assert ours.shape == theirs.shape
    different = ours.view(torch.int32) != theirs.float().contiguous().view(torch.int32)
    assert not different.any(), f"{int(different.sum())} of {different.numel()} values differ"


def assert_same_layers(encoding, theirs: Tensor, grid: tuple[int, int]) -> None:
    for layer in range(theirs.shape[0]):
        assert_same_bits(encoding.bias_matrix(grid, layer=layer, num_prefix_tokens=0), theirs[layer])


@pytest.mark.parametrize(
    ("file", "key"), [(file, key) for file in FILES for key in keys(f"lookhere_bias_{file}_h12", "bias.")]
)
def test_presets(file: str, key: str) -> None:
    _, grid, distance, slope = key.split(".", 3)
    options = {"distance": distance, "global_slope": float(slope.removeprefix("gs"))}
    theirs = golden(f"lookhere_bias_{file}_h12")[key]
    assert_same_layers(lookhere(12, FILES[file], **options), theirs, grid_of(grid))
    if file in PRESET_NAMES:
        assert_same_layers(lookhere(12, None, name=PRESET_NAMES[file], **options), theirs, grid_of(grid))


@pytest.mark.parametrize("key", keys("lookhere_bias_layouts"))
def test_layouts(key: str) -> None:
    _, heads, directions, grid = key.split(".")
    encoding = lookhere(int(heads.removeprefix("h")), directions)
    assert_same_layers(encoding, golden("lookhere_bias_layouts")[key], grid_of(grid))


@pytest.mark.parametrize("key", keys("lookhere_bias_ablations", "bias."))
def test_ablations(key: str) -> None:
    what = key.removeprefix("bias.")
    options = ABLATIONS[what] if what in ABLATIONS else {"global_slope": float(what.removeprefix("gs"))}
    encoding = lookhere(12, **{"directions": ABLATED, **options})
    assert_same_layers(encoding, golden("lookhere_bias_ablations")[key], (3, 5))


@pytest.mark.parametrize("value", ["fill_zero", "fill_max", "gs0.75", "gs4.0"])
def test_ablations_by_knob_and_configuration_are_one(value: str) -> None:
    """Turning the knob gives the same bits as configuring the slope."""
    theirs = golden("lookhere_bias_ablations")[f"bias.{value}"]
    encoding = lookhere(12, ABLATED, **ABLATIONS.get(value, {}), global_slope=3.0)
    encoding.set_knob(float(value.removeprefix("gs")) if value.startswith("gs") else 1.0)
    assert_same_layers(encoding, theirs, (3, 5))


@pytest.mark.parametrize("how", ["global", "knob", "layer", "head"])
def test_slope_of_zero_keeps_the_mask(how: str) -> None:
    """The public code loses the mask there (0 * inf): the same cells stay masked, the others cost nothing."""
    assert not golden("lookhere_bias_ablations")["officialbug.gs0"].any()
    if how == "global":
        encoding = lookhere(12, ABLATED, global_slope=0.0)
    elif how == "layer":
        encoding = lookhere(12, ABLATED, layer_slopes=(0.0, 0.0))
    elif how == "head":
        encoding = lookhere(12, ABLATED, head_slopes=(0.0,) * 12)
    else:
        encoding = lookhere(12, ABLATED)
        encoding.set_knob(0)
    masked = lookhere(12, ABLATED).bias_matrix((3, 5), num_prefix_tokens=0) == -BFLOAT16_MAX
    assert masked.any()
    for layer in range(2):
        bias = encoding.bias_matrix((3, 5), layer=layer, num_prefix_tokens=0)
        assert torch.equal(bias == -BFLOAT16_MAX, masked)
        assert not bias[~masked].any()


def test_slope_of_zero_in_one_layer_alone() -> None:
    encoding = lookhere(12, ABLATED, layer_slopes=(1.0, 0.0))
    first, last = (encoding.bias_matrix((3, 5), layer=layer, num_prefix_tokens=0) for layer in range(2))
    assert torch.equal(first == -BFLOAT16_MAX, last == -BFLOAT16_MAX)
    assert first[first > -BFLOAT16_MAX].any()
    assert not last[last > -BFLOAT16_MAX].any()


@pytest.mark.parametrize("file", FILES)
def test_exact_rounding(file: str) -> None:
    """Before the public code rounds: head slope times distance in float64, infinite where masked."""
    theirs = golden(f"lookhere_bias_{file}_h12")["layer_f64_inf.3x5.linear"]
    ours = lookhere(12, FILES[file], layer_slopes=(1.0, 1.0), rounding="exact").bias_matrix((3, 5), num_prefix_tokens=0)
    assert torch.equal(ours.isinf(), theirs.isinf())
    assert (ours[ours.isinf()] < 0).all()
    assert_same_bits(ours, -theirs.float())


def test_official_rounds_the_product_once() -> None:
    """bf16(slope * distance) is not slope * bf16(distance): the trap, shown to matter, and not fallen into."""
    encoding = lookhere(12, FILES["LH180"], global_slope=0.95)
    exact = lookhere(12, FILES["LH180"], global_slope=0.95, rounding="exact")
    official, unrounded = (one.bias_matrix((14, 14), num_prefix_tokens=0)[-4:] for one in (encoding, exact))
    assert torch.equal(official, unrounded.bfloat16().float())
    distance = exact.bias_matrix((14, 14), num_prefix_tokens=0)[-4] / (0.95 * 1.5 / 4)
    rounded_too_early = (0.95 * 1.5 / 4) * distance.bfloat16().float()
    assert not torch.equal(official[0], rounded_too_early.bfloat16().float())


@pytest.mark.parametrize("file", ["LH180", "LH90", "LH45"])
def test_prefix_rows_and_columns(file: str) -> None:
    theirs = golden(f"lookhere_model_{file}")["bias.train.block0"]
    encoding = lookhere(12, FILES[file], depth=3)
    assert_same_bits(encoding.bias_matrix((4, 4), num_prefix_tokens=1), theirs)
    assert_same_bits(encoding.bias_matrix((4, 4)), theirs)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (7, 1), (3, 5)])
def test_prefix_tokens_see_and_are_seen_by_all(grid: tuple[int, int], count: int) -> None:
    encoding = lookhere(12, FILES["LH45"])
    bias = encoding.bias_matrix(grid, num_prefix_tokens=count)
    assert bias.shape == (12, count + grid[0] * grid[1], count + grid[0] * grid[1])
    assert_same_bits(bias[:, count:, count:].contiguous(), encoding.bias_matrix(grid, num_prefix_tokens=0))
    assert not bias[:, :count].any()
    assert not bias[:, :, :count].any()


def test_layer_slopes_are_evenly_spaced_also_for_one_or_two_layers() -> None:
    assert [lookhere(12, ABLATED, depth=1).layer_slope(0)] == [1.5]
    assert [lookhere(12, ABLATED, depth=2).layer_slope(layer) for layer in range(2)] == [1.5, 0.5]
    five = lookhere(12, ABLATED, depth=5)
    assert [five.layer_slope(layer) for layer in range(5)] == [1.5, 1.25, 1.0, 0.75, 0.5]
