"""Clips to tubelets and back, images among them, and what a configuration says of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sightline.errors import InputError
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import ImagePatchifier, Patchifier
from sightline.tokens.tubelets import TubeletPatchifier


@pytest.mark.parametrize(("frames", "tubelet"), [(4, 2), (3, 1), (6, 3), (5, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_linear_layer_over_tubelets_is_the_3d_convolution(frames: int, tubelet: int, dtype: torch.dtype) -> None:
    clips = torch.randint(0, 256, (2, 3, frames, 8, 12)).to(dtype)
    patchifier = TubeletPatchifier(4, tubelet=tubelet)
    rows, grid = patchifier(clips)
    assert grid == patchifier.grid_of(8, 12, frames) == Grid(frames // tubelet, 2, 3)
    assert rows.dtype == dtype
    assert rows.shape == (2, grid.cells, patchifier.patch_dim)
    weight = torch.randn(7, 3, tubelet, 4, 4)
    by_convolution = F.conv3d(clips.float() / 255, weight, stride=(tubelet, 4, 4)).flatten(2).transpose(1, 2)
    by_rows = F.linear(rows.float() / 255, weight.flatten(1))
    assert (by_convolution - by_rows).abs().max() < 1e-4
    assert torch.equal(patchifier.unpatchify(rows, grid), clips)


def test_the_last_frame_is_repeated_and_an_image_stands_still() -> None:
    patchifier = TubeletPatchifier(4, tubelet=3)
    clips = torch.randn(2, 3, 4, 8, 12)
    rows, grid = patchifier(clips)
    assert grid == patchifier.grid_of(8, 12, 4) == Grid(2, 2, 3)
    back = patchifier.unpatchify(rows, grid)
    assert torch.equal(back[:, :, :4], clips)
    assert torch.equal(back[:, :, 4:], clips[:, :, 3:].expand(-1, -1, 2, -1, -1))
    image = clips[:, :, 0]
    rows, grid = patchifier(image)
    assert grid == patchifier.grid_of(8, 12) == Grid(1, 2, 3)
    assert torch.equal(patchifier.unpatchify(rows, grid), image.unsqueeze(2).expand(-1, -1, 3, -1, -1))
    # A row is (channel, frame, y, x).
    assert torch.equal(
        rows.unflatten(-1, (3, 3, 16))[:, :, 1, 2], Patchifier(4)(image)[0].unflatten(-1, (3, 16))[:, :, 1]
    )


@pytest.mark.parametrize("fit", ["pad", "resize", "crop"])
def test_frames_are_fitted_as_images_are(fit) -> None:
    clips = torch.rand(2, 3, 3, 9, 14)
    rows, grid = TubeletPatchifier(4, fit=fit, tubelet=1)(clips)
    stills = [Patchifier(4, fit=fit)(frame) for frame in clips.unbind(2)]
    assert grid == Grid(3, *stills[0][1])
    assert torch.equal(rows, torch.cat([rows for rows, _ in stills], dim=1))
    with pytest.raises(InputError, match="image of 9x14 pixels"):
        TubeletPatchifier(4)(clips)


@pytest.mark.parametrize("fit", ["exact", "pad", "resize"])
def test_rows_of_bytes_are_those_of_pixels(fit) -> None:
    """As workers make them of a clip and of an image: values from 0 to 255, 0 where something is added after them."""
    height, width = (8, 12) if fit == "exact" else (9, 14)
    mean = torch.tensor((0.1, 0.5, 0.9))
    rows_of = pickle.loads(
        pickle.dumps(ImagePatchifier(TubeletPatchifier(4, fit=fit, tubelet=2), tuple(mean.tolist())))
    )
    for shape in ((3, height, width, 3), (height, width, 3)):
        stored = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        rows, grid = rows_of(stored)
        clip = torch.from_numpy(stored.reshape(-1, height, width, 3)).permute(3, 0, 1, 2).float()
        shift = 255 * mean.view(3, 1, 1, 1)
        expected, same = rows_of.patchifier((clip - shift).unsqueeze(0))
        assert grid == same
        assert rows.dtype == (torch.uint8 if fit == "exact" else torch.float32)
        off = rows.float().unflatten(-1, (3, -1)) - 255 * mean.view(3, 1) - expected[0].unflatten(-1, (3, -1))
        assert off.abs().max() < 1e-4
