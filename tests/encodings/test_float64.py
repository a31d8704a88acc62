"""In float64 everything is: gradients are those that finite differences give, and rotations lose no digit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from sightline.attention import rotate
from sightline.encodings import create_encoding, list_encodings
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import build, images

JOINED = ["rope_mixed+learned_1d", "rope_axial+rpe_learned"]


@pytest.mark.parametrize("encoding", [*list_encodings(), *JOINED])
def test_gradients_are_those_of_finite_differences(encoding):
    model = build(encoding, dim=48, depth=1, image_size=(12, 16)).double()
    names = [name for name, _ in model.named_parameters() if name.startswith("encoding.")]
    weights = [model.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def logits(batch, *weights):
        return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (batch,))

    # As in training, and on another grid.
    for grid in ((3, 4), (2, 3)):
        batch = images(grid, count=1).double().requires_grad_()
        assert torch.autograd.gradcheck(logits, (batch, *weights), fast_mode=True)


@pytest.mark.parametrize("encoding", ["rope_axial", "rope_dinov3", "rope_mixed"])
def test_a_rotation_in_float64_is_one(encoding):
    shape: dict[str, Any] = {"depth": 1, "heads": 2, "dim": 16, "train_grid": (6, 8), "num_prefix_tokens": 1}
    made: Any = create_encoding(encoding, **shape).double()
    rotation = made.rotation(0, TokenLayout.uniform((6, 8), 1))
    assert rotation.angles.dtype == torch.float64
    x = torch.randn(1, 2, 49, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, rotation)
    pairs, found = (
        one.unflatten(-1, (-1, 2)) if rotation.pairing == "adjacent" else one.unflatten(-1, (2, -1)).mT
        for one in (x, turned)
    )
    expected = torch.view_as_complex(pairs.contiguous()) * torch.exp(1j * rotation.angles)
    assert (torch.view_as_complex(found.contiguous()) - expected).abs().max() < 1e-14
    if encoding == "rope_axial":
        # Cell (5, 7), the last: x has the first half.
        exact = [7 * 100.0 ** (-4 * j / 8) for j in range(2)] + [5 * 100.0 ** (-4 * j / 8) for j in range(2)]
        assert all(
            math.isclose(a, b, rel_tol=1e-15) for a, b in zip(rotation.angles[0, 0, -1].tolist(), exact, strict=True)
        )
    assert made.float().rotation(0, TokenLayout.uniform((6, 8), 1)).angles.dtype == torch.float32
    assert made.bfloat16().rotation(0, TokenLayout.uniform((6, 8), 1)).angles.dtype == torch.float32
