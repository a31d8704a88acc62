"""Positions and angles in float32, whatever the precision of the model around them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.encodings import create_encoding
from sightline.models import create_model
from sightline.tokens.layout import TokenLayout

SHAPE = {"depth": 2, "heads": 3, "dim": 48}


def axial_in_float64(rows: int, cols: int, head_dim: int, theta: float = 100.0) -> Tensor:
    frequency = theta ** (-torch.arange(0, head_dim, 4).double() / head_dim)
    y, x = torch.meshgrid(torch.arange(rows).double(), torch.arange(cols).double(), indexing="ij")
    return torch.cat((x.reshape(-1, 1) * frequency, y.reshape(-1, 1) * frequency), dim=-1)


@pytest.mark.parametrize("grid", [(32, 32), (37, 53), (64, 64)])
def test_angles_are_those_of_float64(grid: tuple[int, int]) -> None:
    angles = create_encoding("rope_axial", **SHAPE).rotation_angles(grid)[0]
    assert (angles - axial_in_float64(*grid, 16)).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["rope_axial", "rope_mixed"])
@pytest.mark.parametrize("held_in", [torch.float32, torch.bfloat16])
def test_angles_in_a_model_under_autocast(name: str, held_in: torch.dtype) -> None:
    """At 32 x 32 in bfloat16 positions beyond 256 are rounded, and angles are wrong by 0.25 and more."""
    model = create_model("vit_micro_patch4", encoding=name, num_classes=5, dim=48, depth=2)
    layout = TokenLayout.uniform((32, 32), 1)
    expected = [model.encoding.rotation(layer, layout).angles.detach() for layer in range(2)]
    seen: list[Tensor] = []
    original = model.encoding.rotation

    def watch(layer: int, layout: TokenLayout):
        rotation = original(layer, layout)
        seen.append(rotation.angles)
        return rotation

    model.encoding.rotation = watch
    model.to(held_in)
    images = torch.randn(1, 3, 128, 128, dtype=held_in)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(images)
    assert len(seen) == 2
    for found, reference in zip(seen, expected, strict=True):
        assert found.dtype == torch.float32
        if held_in == torch.float32 or name == "rope_axial":
            assert (found - reference).abs().max() <= 1e-5
        else:
            # Frequencies that are held in bfloat16 are what they are; the product with the position is not rounded.
            frequencies = model.encoding.freqs.detach().double()
            y, x = layout.segments[0].coords[0].double().unbind(-1)
            layer = next(number for number, one in enumerate(seen) if one is found)
            along_x, along_y = frequencies[:, layer].unsqueeze(2)
            exact = x.unsqueeze(-1) * along_x + y.unsqueeze(-1) * along_y
            assert (found[0, :, 1:] - exact).abs().max() <= 1e-4


@pytest.mark.parametrize("name", ["lookhere_45", "alibi_2d", "rpe_learned"])
def test_biases_under_autocast(name: str) -> None:
    encoding = create_encoding(name, **{**SHAPE, "heads": 12})
    expected = encoding.bias_matrix((9, 11))
    with torch.autocast("cpu", torch.bfloat16):
        found = encoding.bias_matrix((9, 11))
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_a_default_dtype_of_16_bits_does_not_reach_the_positions() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        angles = create_encoding("rope_axial", **SHAPE).rotation_angles((32, 32))[0]
        bias = create_encoding("alibi_2d", **SHAPE).bias_matrix((1, 300), num_prefix_tokens=0)
        table = create_encoding("sincos_2d", **SHAPE).embedding((1, 300))
    finally:
        torch.set_default_dtype(torch.float32)
    assert angles.dtype == bias.dtype == table.dtype == torch.float32
    assert (angles - axial_in_float64(32, 32, 16)).abs().max() < 1e-5
    slopes = -bias[:, 0, 1:2]
    assert torch.allclose(-bias[:, 0], slopes * torch.arange(300))
    assert torch.equal(table, create_encoding("sincos_2d", **SHAPE).embedding((1, 300)))
