"""Clips to tubelets and back, images among them, and what a configuration says of them."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sightline.errors import InputError
from sightline.hub.load import config_from_record, load_model, save_model, to_nested
from sightline.models import ViTConfig, make_model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import ImagePatchifier, Patchifier
from sightline.tokens.tubelets import TubeletPatchifier

SMALL = {
    "dim": 24,
    "heads": 4,
    "depth": 1,
    "num_classes": 3,
    "patch_size": 4,
    "image_size": (8, 12),
    "encoding": "none",
}


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


def test_one_frame_a_tubelet_is_the_patches_of_each_frame() -> None:
    clips = torch.randn(2, 3, 4, 8, 12)
    rows, grid = TubeletPatchifier(4, tubelet=1)(clips)
    assert grid == Grid(4, 2, 3)
    assert torch.equal(rows, torch.cat([Patchifier(4)(frame)[0] for frame in clips.unbind(2)], dim=1))


@pytest.mark.parametrize("fit", ["pad", "resize", "crop"])
def test_frames_are_fitted_as_images_are(fit) -> None:
    clips = torch.rand(2, 3, 3, 9, 14)
    rows, grid = TubeletPatchifier(4, fit=fit, tubelet=1)(clips)
    stills = [Patchifier(4, fit=fit)(frame) for frame in clips.unbind(2)]
    assert grid == Grid(3, *stills[0][1])
    assert torch.equal(rows, torch.cat([rows for rows, _ in stills], dim=1))
    with pytest.raises(InputError, match="image of 9x14 pixels"):
        TubeletPatchifier(4)(clips)


def test_what_is_no_clip_is_refused_in_a_line() -> None:
    with pytest.raises(InputError, match=r"^clip of 0 frames: expected at least 1$"):
        TubeletPatchifier(4)(torch.zeros(1, 3, 0, 8, 8))
    with pytest.raises(
        InputError, match=r"^clip of 5 frames: this model's embedder cuts images \(expected tubelets\)$"
    ):
        ImagePatchifier(Patchifier(4), (0.5,) * 3)(np.zeros((5, 8, 8, 3), np.uint8))


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


def test_the_grid_that_a_model_of_clips_was_trained_on() -> None:
    config = ViTConfig(**SMALL, embedder="tubelets", embedder_options={"frames": 2}, clip_frames=7)
    assert config.train_grid == config.grid_of((8, 12)) == Grid(4, 2, 3)
    assert config.grid_of(16) == Grid(4, 4, 4)
    assert config.grid_of(16, frames=1) == Grid(1, 4, 4)
    assert config.table_size == (8, 12)
    assert config.replace(clip_frames=None).train_grid == Grid(1, 2, 3)
    assert config.replace(clip_frames=3, table_grid=(4, 2, 3)).train_grid == Grid(4, 2, 3)
    assert config.replace(table_grid=(4, 2, 3)).plain() == config
    assert ViTConfig(**SMALL).train_grid == Grid(2, 3)
    assert (Patchifier.axes, TubeletPatchifier.axes) == (2, 3)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"clip_frames": 4}, ("clip_frames", "4", "tubelets")),
        ({"clip_frames": 0}, ("clip_frames", "0", "at least 1")),
        ({"table_grid": (2, 2, 3)}, ("table_grid", "(2, 2, 3)", "(rows, cols)")),
        ({"embedder": "tubelets", "table_grid": (2, 3)}, ("table_grid", "(2, 3)", "3 whole numbers")),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(fields, said: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as raised:
        ViTConfig(**{**SMALL, **fields})
    assert all(word in str(raised.value) for word in said)


def test_options_of_the_embedder_are_looked_at() -> None:
    for options, said in (
        ({"frame": 2}, ("'frame'", "'frames'")),
        ({"frames": 0}, ("frames", "0", "at least 1")),
        ({"frames": "2"}, ("frames", "2", "whole number")),
    ):
        with pytest.raises(InputError) as raised:
            make_model(ViTConfig(**SMALL, embedder="tubelets", embedder_options=options))
        assert all(word in str(raised.value) for word in said)


def test_a_model_of_clips_is_saved_and_read(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = make_model(ViTConfig(**SMALL, embedder="tubelets", embedder_options={"frames": 2}, clip_frames=4)).eval()
    assert model.state_dict()["patch_embed.proj.weight"].shape == (24, 2 * 3 * 16)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.config == model.config
    rows, grid = model.patch_embed.patchifier(torch.randn(2, 3, 4, 8, 12))
    layout = TokenLayout.uniform(grid, 2, num_prefix_tokens=model.num_prefix_tokens)
    assert torch.equal(again(rows, layout=layout), model(rows, layout=layout))


def test_a_configuration_without_clips_is_as_it_was() -> None:
    record = to_nested(dataclasses.asdict(ViTConfig(**SMALL)))
    del record["preparation"]["clip_frames"]
    assert config_from_record(record) == ViTConfig(**SMALL)
