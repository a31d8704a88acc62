"""ViViT against the public code: transformers' model, and scenic's embedding and initialisers (golden_families/)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline import create_model
from sightline.convert import export_weights, import_weights
from sightline.encodings import create_encoding
from sightline.encodings.interpolate import resize_table
from sightline.errors import InputError
from sightline.models import Model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.parity.family_files import assert_close, files, read, weights

INITIALISERS = {"central": "central_frame", "average": "average_frame", "rank_pooling": "average_arp_frame"}


def square(file: str) -> bool:
    """Patches of ours are squares; others are refused, which is tried too."""
    given = read(file)[1]
    return len(set(given.get("tubelet_size", given.get("tubelet"))[1:])) == 1


VIVITS = [file for file in files("vivit") if square(file)]
TUBELETS = [file for file in files("tubelet_scenic") if square(file)]
OBLONG = [file for kind in ("vivit", "tubelet_scenic") for file in files(kind) if not square(file)]


@pytest.mark.parametrize("file", VIVITS)
@torch.no_grad()
def test_the_model_of_transformers(file: str) -> None:
    tensors, given = read(file)
    model = import_weights("vivit", weights(tensors), given)
    # [B, T, C, H, W] there; frames beyond the last whole tubelet are dropped there, and repeated here.
    clips = tensors["in.video_btchw"].transpose(1, 2)
    clips = clips[:, :, : model.config.clip_frames]
    rows, layout = model.prepare(clips)
    assert_close(model.patch_embed(rows, layout), tensors["out.tubelets"])
    tokens = model.embed(rows, layout)
    assert_close(tokens + model.encoding.added(0, layout), tensors["out.embeddings"])
    assert_close(model.forward_features(clips), tensors["out.last_hidden_state"])
    assert_close(model(clips), tensors["out.last_hidden_state"][:, 0])


@pytest.mark.parametrize("file", VIVITS)
def test_there_and_back_bit_by_bit(file: str) -> None:
    tensors, given = read(file)
    state = weights(tensors)
    model = import_weights("vivit", state, given)
    back, arguments = export_weights(model, "vivit")
    kept = {name: one for name, one in state.items() if not name.startswith("pooler.")}
    assert back.keys() == kept.keys()
    assert all(torch.equal(back[name], one) for name, one in kept.items())
    again = import_weights("vivit", back, json.loads(json.dumps(arguments)))
    assert again.config == model.config


def image_model(tensors: dict[str, Tensor], given: dict[str, Any]) -> Model:
    """A model of images that embeds patches with the file's 2-D kernel [h, w, channels, dim]."""
    kernel = tensors["sd.embedding2d/kernel"]
    *sides, channels, dim = kernel.shape
    patch: Any = sides[0] if len(set(sides)) == 1 else tuple(sides)
    model = create_model(
        "vit_micro_patch4", dim=dim, heads=1, depth=1, num_classes=0, patch_size=patch, channels=channels,
        image_size=tuple(given["image"]), encoding="learned_1d",
    )  # fmt: skip
    with torch.no_grad():
        model.patch_embed.proj.weight.copy_(kernel.permute(3, 2, 0, 1).flatten(1))
        model.patch_embed.proj.bias.copy_(tensors["sd.embedding2d/bias"])
    return model


def inflations() -> list[tuple[str, str]]:
    """Which file has which initialiser."""
    every = [(file, ours) for file in TUBELETS for ours in INITIALISERS]
    return [(file, ours) for file, ours in every if f"out.{INITIALISERS[ours]}_initializer.kernel" in read(file)[0]]


@pytest.mark.parametrize(("file", "inflation"), inflations())
@torch.no_grad()
def test_a_tubelet_begins_with_an_image_models_weights(file: str, inflation: str) -> None:
    tensors, given = read(file)
    there = INITIALISERS[inflation] + "_initializer"
    frames = given["tubelet"][0]
    clips = tensors["in.video_bthwc"].permute(0, 4, 1, 2, 3)
    # What is beyond the last whole tubelet is dropped there.
    clips = clips[:, :, : clips.shape[2] // frames * frames]
    images = image_model(tensors, given)
    model = create_model(
        init_from=images, embedder="tubelets", embedder_options={"frames": frames, "inflation": inflation},
        clip_frames=clips.shape[2],
    )  # fmt: skip
    # [t, h, w, channels, dim] there.
    kernel = tensors[f"out.{there}.kernel"].permute(4, 3, 0, 1, 2)
    assert_close(model.patch_embed.proj.weight, kernel.flatten(1), 1e-6)
    rows, layout = model.prepare(clips)
    assert layout.segments[0].grid == Grid(*given["grid"])
    # [batch, frames, rows, cols, dim] there.
    assert_close(model.patch_embed(rows, layout), tensors[f"out.{there}.tokens"].flatten(1, 3))
    # The table of positions is the image's in each frame.
    cells = images.encoding.table.shape[0]
    assert torch.equal(
        model.encoding.table.unflatten(0, (-1, cells)), images.encoding.table.expand(given["grid"][0], -1, -1)
    )


def test_patches_that_are_no_squares_are_refused() -> None:
    tensors, given = read(VIVITS[0])
    refused = [partial(import_weights, "vivit", weights(tensors), {**given, "tubelet_size": (2, 4, 8)})]
    for tensors, given in map(read, OBLONG):
        other = partial(import_weights, "vivit", weights(tensors), given)
        refused.append(other if "tubelet_size" in given else partial(image_model, tensors, given))
    for made in refused:
        with pytest.raises(InputError, match=r"equal sides|patch_size"):
            made()


@pytest.mark.parametrize("file", TUBELETS)
@torch.no_grad()
def test_the_width_is_not_what_a_central_frame_is_of(file: str) -> None:
    """Officially the initialiser of a fresh kernel leaves the middle column of a patch where the middle frame is
    meant: ours leaves the frame, and no column is empty."""
    tensors, given = read(file)
    by_time = tensors["officialbug.central_frame_initializer.nonzero_by_axis0_time"]
    by_width = tensors["officialbug.central_frame_initializer.nonzero_by_axis2_width"]
    assert by_time.all()
    assert by_width.sum() == 1
    frames, patch, _ = given["tubelet"]
    model = create_model(
        init_from=image_model(tensors, given),
        embedder="tubelets",
        embedder_options={"frames": frames},
        clip_frames=frames,
    )
    there = model.patch_embed.proj.weight.unflatten(-1, (-1, frames, patch, patch)) != 0
    assert there.any((0, 1, 3, 4)).tolist() == [frame == frames // 2 for frame in range(frames)]
    assert there.any((0, 1, 2, 3)).all()


@pytest.mark.parametrize("file", files("tubelet_scenic"))
@torch.no_grad()
def test_tables_of_positions_as_scenic_turns_them(file: str) -> None:
    tensors, _ = read(file)
    table = tensors["in.posemb2d"]
    side = round(len(table) ** 0.5)
    still = Grid(side, side)
    (tiled,) = [one for name, one in tensors.items() if name.startswith("out.posemb_tiled.")]
    frames = tiled.shape[1] // len(table)
    grid = Grid(frames, *still)
    encoding = create_encoding("learned_1d", train_grid=grid, depth=1, heads=1, dim=table.shape[1], num_prefix_tokens=0)
    # As `create_model(init_from=)` begins a model of clips.
    encoding.load_state_dict(encoding.inflate_from_image({"table": table}))
    added = encoding.added(0, TokenLayout.uniform(grid, 1, num_prefix_tokens=0))
    assert_close(added, tiled, 1e-6)
    zoomed = tensors["out.posemb_zoom_then_tiled"]
    size = round((zoomed.shape[1] / frames) ** 0.5)
    larger = resize_table(table.repeat(frames, 1), grid, Grid(frames, size, size), "corner_aligned")
    assert_close(larger.unsqueeze(0), zoomed, 1e-6)
    in_time = tensors["out.posemb_time_zoom"]
    longer = resize_table(table, Grid(len(table), 1, 1), Grid(in_time.shape[1], 1, 1), "corner_aligned")
    assert_close(longer.unsqueeze(0), in_time, 1e-6)
