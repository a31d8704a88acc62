"""Images to patches and back, and sizes that the patch does not divide."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import InputError
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import fit_to_patches, patchify, unpatchify


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_round_trip(batch: int, channels: int, rows: int, cols: int, patch: int) -> None:
    images = torch.randn(batch, channels, rows * patch, cols * patch)
    patches = patchify(images, patch)
    assert patches.shape == (batch, rows * cols, channels * patch**2)
    if batch:
        assert torch.equal(unpatchify(patches, Grid(rows, cols), patch), images)


@pytest.mark.parametrize("patch", [4, 8, 14, 16, 24])
def test_bytes_are_cut_as_other_numbers_are(patch: int) -> None:
    """Eight at once where they may be: not where the patch is no multiple, nor where memory begins in between."""
    flat = torch.randint(0, 256, (3 + 2 * 3 * 2 * 3 * patch**2,), dtype=torch.uint8)
    for images in (flat[3:], flat[:-3]):
        images = images.reshape(2, 3, 2 * patch, 3 * patch)
        for some in (images, images.mT.contiguous().mT, images[:, :, :patch]):
            assert torch.equal(patchify(some, patch), patchify(some.int(), patch).byte())


def test_a_linear_layer_over_patches_is_the_convolution() -> None:
    images, weight, bias = torch.randn(2, 3, 12, 20), torch.randn(7, 3, 4, 4), torch.randn(7)
    by_convolution = F.conv2d(images, weight, bias, stride=4).flatten(2).transpose(1, 2)
    by_patches = F.linear(patchify(images, 4), weight.flatten(1), bias)
    assert (by_convolution - by_patches).abs().max() < 1e-4


def test_pad_puts_zeros_at_the_bottom_and_right() -> None:
    images = 1 + torch.rand(2, 3, 5, 11)
    fitted, grid = fit_to_patches(images, 4, "pad")
    assert fitted.shape == (2, 3, 8, 12)
    assert grid == Grid(2, 3)
    assert torch.equal(fitted[:, :, :5, :11], images)
    assert not fitted[:, :, 5:].any()
    assert not fitted[:, :, :, 11:].any()


@pytest.mark.parametrize(
    ("size", "grid"),
    [((5, 11), (1, 3)), ((1, 2000), (1, 500)), ((1, 1), (1, 1)), ((7, 9), (2, 2)), ((640, 427), (160, 107))],
)
def test_resize_takes_the_nearest_multiple(size: tuple[int, int], grid: tuple[int, int]) -> None:
    images = torch.rand(1, 3, *size)
    fitted, found = fit_to_patches(images, 4, "resize")
    assert found == Grid(*grid)
    assert fitted.shape[-2:] == (grid[0] * 4, grid[1] * 4)
    assert fitted.min() >= images.min() - 1e-4
    assert fitted.max() <= images.max() + 1e-4
    # A constant image stays one, and left does not become right.
    constant, _ = fit_to_patches(torch.full((1, 3, *size), 0.25), 4, "resize")
    assert (constant - 0.25).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("size", "nearest"),
    [
        ((33, 32), "32x32, 36x32"),
        ((32, 30), "32x28, 32x32"),
        ((33, 30), "32x28, 32x32, 36x28, 36x32"),
        ((3, 8), "4x8"),
        ((1, 2000), "4x2000"),
    ],
)
def test_exact_says_the_nearest_sizes(size: tuple[int, int], nearest: str) -> None:
    with pytest.raises(InputError) as raised:
        fit_to_patches(torch.rand(1, 3, *size), 4)
    message = str(raised.value)
    assert f"{size[0]}x{size[1]}" in message
    assert f"(nearest: {nearest})" in message
    assert "fit='pad'" in message
    assert "fit='resize'" in message
