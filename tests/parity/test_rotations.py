"""Angles, and what they do to queries and keys, against RoPE-ViT and timm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.attention import Rotation, rotate
from sightline.encodings import create_encoding
from tests.parity.golden_files import golden, grid_of, keys, weights

TOLERANCE = 1e-6
SHAPE = {"depth": 2, "heads": 3, "dim": 48}
ROPE_VIT = ["ropevit_axial", "ropevit_axial_ape", "ropevit_mixed", "ropevit_mixed_ape"]
TIMM = {
    "timm_vit_rope_axial_xy": {"theta": 100.0, "axis_order": "xy"},
    "timm_vit_rope_axial_ape_xy": {"theta": 100.0, "axis_order": "xy"},
    "timm_eva02_rope_ij": {"theta": 10000.0, "axis_order": "yx", "coordinates": "squeezed", "train_grid": (4, 4)},
    "timm_vit_rope_sbb": {"theta": 10000.0, "axis_order": "yx", "coordinates": "squeezed", "train_grid": (16, 16)},
}


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = TOLERANCE) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= tolerance


def mixed(freqs: Tensor):
    encoding = create_encoding("rope_mixed", **SHAPE)
    with torch.no_grad():
        encoding.freqs.copy_(freqs.reshape(encoding.freqs.shape))
    return encoding


def rope_vit(file: str):
    return mixed(weights(file)["freqs"]) if "mixed" in file else create_encoding("rope_axial", **SHAPE)


@pytest.mark.parametrize("file", ROPE_VIT)
def test_rotation_table_of_rope_vit(file: str) -> None:
    real, imaginary = golden(file)["cis.rect.real"], golden(file)["cis.rect.imag"]
    encoding = rope_vit(file)
    for layer in range(2):
        angles = encoding.rotation_angles((4, 7), layer=layer).detach()
        assert angles.dtype == torch.float32
        axial = real.dim() == 2
        assert_close(angles.cos(), real.unsqueeze(0) if axial else real[layer])
        assert_close(angles.sin(), imaginary.unsqueeze(0) if axial else imaginary[layer])


@pytest.mark.parametrize("file", ROPE_VIT)
def test_applied_rotation_of_rope_vit(file: str) -> None:
    """The public `rot.*` are of the first layer."""
    encoding = rope_vit(file)
    rotation = Rotation(encoding.rotation_angles((4, 7), layer=0).detach().unsqueeze(0), encoding.pairing)
    for which in ("q", "k"):
        before, after = golden(file)[f"rot.{which}"], golden(file)[f"rot.{which}_out"]
        assert (before - after).abs().max() > 0.5
        assert_close(rotate(before, rotation), after)


@pytest.mark.parametrize("file", ["ropevit_mixed", "ropevit_mixed_ape"])
def test_start_of_mixed_frequencies(file: str) -> None:
    """The public start: one random direction a head, magnitudes theta^(-4j/d), the second half turned by a quarter."""
    theirs, ours = golden(file)["freqs_init"].view(2, 2, 3, 16 // 2), create_encoding("rope_mixed", **SHAPE).freqs
    expected = 10.0 ** (-torch.arange(0, 16, 4) / 16)
    for freqs in (theirs, ours.detach()):
        magnitude = (freqs[0].square() + freqs[1].square()).sqrt()
        assert_close(magnitude, expected.repeat(2).expand(2, 3, 8), 1e-5)
        direction = torch.atan2(freqs[1], freqs[0])
        turned = (direction[..., 4:] - direction[..., :4]).remainder(2 * torch.pi)
        assert_close(turned, torch.full((2, 3, 4), torch.pi / 2), 1e-5)
        assert_close(direction[..., :4], direction[..., :1].expand(2, 3, 4), 1e-5)
    assert torch.unique(ours[0, :, :, 0]).numel() == 6


@pytest.mark.parametrize("file", TIMM)
def test_rotation_table_of_timm(file: str) -> None:
    """timm joins [sin | cos], each repeated for the pair of channels."""
    sin, cos = golden(file)["rope.rect"].chunk(2, dim=-1)
    encoding = create_encoding("rope_axial", **{**SHAPE, **TIMM[file]})
    angles = encoding.rotation_angles((4, 7))[0].repeat_interleave(2, dim=-1)
    assert_close(angles.sin(), sin)
    assert_close(angles.cos(), cos)


def test_rotation_table_of_timm_mixed() -> None:
    sin, cos = golden("timm_vit_rope_mixed_xy")["rope.rect"].chunk(2, dim=-1)
    encoding = mixed(weights("timm_vit_rope_mixed_xy")["rope.freqs"])
    for layer in range(2):
        angles = encoding.rotation_angles((4, 7), layer=layer).detach().repeat_interleave(2, dim=-1)
        assert_close(angles.sin(), sin[layer])
        assert_close(angles.cos(), cos[layer])


@pytest.mark.parametrize("key", keys("timm_sincos_fourier_rope_tables", "rope."))
def test_rope_builder_of_timm(key: str) -> None:
    _, indexing, function, grid = key.split(".")
    order = {"ij": "yx", "xy": "xy"}[indexing]
    encoding = create_encoding("rope_axial", depth=1, heads=1, dim=16, axis_order=order)
    angles = encoding.rotation_angles(grid_of(grid))[0].repeat_interleave(2, dim=-1)
    assert_close(getattr(angles, function)(), golden("timm_sincos_fourier_rope_tables")[key])
