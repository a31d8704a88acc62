"""Images to patches and back, and sizes that the patch does not divide."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import InputError
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import fit_to_patches, grid_after_fit, patchify, unpatchify


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


@pytest.mark.parametrize(("rows", "cols"), [(1, 2), (2, 1), (1, 1), (5, 1), (1, 5)])
@pytest.mark.parametrize("batch", [1, 2])
def test_bytes_of_a_grid_of_one_row_or_column_are_cut_too(rows: int, cols: int, batch: int) -> None:
    images = torch.randint(0, 256, (batch, 3, 8 * rows, 8 * cols), dtype=torch.uint8)
    assert torch.equal(patchify(images, 8), patchify(images.int(), 8).byte())


def test_one_patch_is_one_square_of_the_image() -> None:
    images = torch.arange(2 * 3 * 8 * 12).float().reshape(2, 3, 8, 12)
    patches = patchify(images, 4)
    # Patch 4 of a 2 x 3 grid stands in row 1, column 1.
    assert torch.equal(patches[1, 4].reshape(3, 4, 4), images[1, :, 4:8, 4:8])


def test_a_linear_layer_over_patches_is_the_convolution() -> None:
    images, weight, bias = torch.randn(2, 3, 12, 20), torch.randn(7, 3, 4, 4), torch.randn(7)
    by_convolution = F.conv2d(images, weight, bias, stride=4).flatten(2).transpose(1, 2)
    by_patches = F.linear(patchify(images, 4), weight.flatten(1), bias)
    assert (by_convolution - by_patches).abs().max() < 1e-4


@pytest.mark.parametrize("fit", ["exact", "pad", "resize"])
def test_a_size_that_fits_is_left_alone(fit: str) -> None:
    images = torch.randn(2, 3, 8, 12)
    fitted, grid = fit_to_patches(images, 4, fit)
    assert torch.equal(fitted, images)
    assert grid == Grid(2, 3)


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


def test_resize_keeps_the_orientation() -> None:
    ramp = torch.linspace(0, 1, 13).expand(1, 3, 9, 13)
    fitted, _ = fit_to_patches(ramp, 4, "resize")
    assert (fitted[..., -1] > fitted[..., 0]).all()
    assert (fitted[..., 0, :] - fitted[..., -1, :]).abs().max() < 1e-5


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


@pytest.mark.parametrize("fit", ["exact", "pad", "resize"])
@pytest.mark.parametrize("size", [(0, 8), (8, 0), (0, 0)])
def test_an_image_of_no_pixels_is_refused(size: tuple[int, int], fit: str) -> None:
    with pytest.raises(InputError, match="at least 1"):
        fit_to_patches(torch.rand(1, 3, *size), 4, fit)


@pytest.mark.parametrize("fit", ["exact", "pad", "resize"])
@pytest.mark.parametrize("size", [(8, 12), (7, 9)])
def test_no_images(size: tuple[int, int], fit: str) -> None:
    if fit == "exact" and size == (7, 9):
        return
    fitted, grid = fit_to_patches(torch.rand(0, 3, *size), 4, fit)
    assert fitted.shape == (0, 3, grid.rows * 4, grid.cols * 4)
    assert patchify(fitted, 4).shape == (0, grid.cells, 48)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("fit", ["pad", "resize"])
def test_other_precisions(fit: str, dtype: torch.dtype) -> None:
    images = torch.rand(1, 3, 7, 9)
    expected, _ = fit_to_patches(images, 4, fit)
    fitted, _ = fit_to_patches(images.to(dtype), 4, fit)
    assert fitted.dtype == dtype
    assert (fitted.float() - expected).abs().max() < 0.02


@pytest.mark.parametrize("fit", ["exact", "pad", "resize"])
@pytest.mark.parametrize("size", [(8, 12), (4, 4), (9, 12), (1, 30), (10, 14), (6, 22), (3, 2), (0, 4)])
def test_the_grid_without_an_image(size: tuple[int, int], fit: str) -> None:
    """As `fit_to_patches` says, refusals included."""
    said = []
    for ask in (lambda: fit_to_patches(torch.zeros(1, 1, *size), 4, fit)[1], lambda: grid_after_fit(*size, 4, fit)):
        try:
            said.append(ask())
        except InputError as error:
            said.append(str(error))
    assert said[0] == said[1]
