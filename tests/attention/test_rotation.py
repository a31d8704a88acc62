"""Turning queries and keys."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import Rotation, rotate
from sightline.attention import rotation as module


def test_pairings_are_one_rotation_of_permuted_channels() -> None:
    x, angles = torch.randn(2, 3, 5, 8), torch.randn(1, 3, 5, 4)
    permuted = x.unflatten(-1, (4, 2)).transpose(-1, -2).flatten(-2)
    adjacent = rotate(x, Rotation(angles, "adjacent")).unflatten(-1, (4, 2)).transpose(-1, -2).flatten(-2)
    assert torch.allclose(rotate(permuted, Rotation(angles, "halves")), adjacent)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_turned_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    x = torch.randn(1, 2, 1000, 8, dtype=dtype)
    # Angles far beyond what 16 bits hold: whole turns apart.
    angles = torch.arange(1000.0).view(1, 1, 1000, 1) * torch.tensor([1.0, 0.5, 0.1, 0.01])
    turned = rotate(x, Rotation(angles))
    assert turned.dtype == dtype
    assert torch.equal(turned, rotate(x.float(), Rotation(angles)).to(dtype))


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("given", ["a view of projections", "odd strides", "an odd start", "dense", "channels apart"])
def test_as_numbers_or_by_cosines(
    given: str, dtype: torch.dtype, learned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two channels at a time, and their gradients, those of angles that are learned too."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 3, 5, 8, generator=generator).permute(2, 0, 3, 1, 4)[1]
    if given == "odd strides":
        x = torch.randn(2, 5, 7, 9, generator=generator)[..., :8]
    elif given == "an odd start":
        x = torch.randn(2 * 5 * 7 * 8 + 1, generator=generator)[1:].view(2, 5, 7, 8)
    elif given == "channels apart":
        x = torch.randn(2, 5, 8, 7, generator=generator).transpose(2, 3)
    elif given == "dense":
        x = x.contiguous()
    x, angles = x.to(dtype), torch.randn(1, 5, 7, 4, generator=generator).requires_grad_(learned)
    weights, results = torch.randn(x.shape, generator=generator).to(dtype), []
    for looked_for in (False, True):
        monkeypatch.setattr(module, "is_traced", lambda looked_for=looked_for: looked_for)
        leaf = x.detach().requires_grad_()
        out = rotate(leaf, Rotation(angles))
        assert out.dtype == dtype
        results.append([out, *torch.autograd.grad(out, (leaf, angles) if learned else (leaf,), weights)])
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
