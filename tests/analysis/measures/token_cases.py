"""Images in every layout, and what a model makes of each of them written out: one image after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.analysis.images import Normalised
from sightline.models import create_model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

PATCH = 4
SHAPE = {"image_size": (12, 20), "depth": 2, "dim": 48, "heads": 4, "num_classes": 5}


def model(encoding: str = "lookhere_90", seed: int = 0, **changes: Any):
    """A tiny model in float64 whose every weight counts."""
    made = create_model("vit_micro_patch4", encoding=encoding, **(SHAPE | changes))
    return randomise_parameters(made, seed).double().eval()


def images(*grids: tuple[int, int], seed: int = 0) -> list[Tensor]:
    """Normalised images [3, height, width] of grids."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(3, PATCH * rows, PATCH * cols, generator=generator, dtype=torch.float64) for rows, cols in grids
    ]


def batch(model: Any, shown: Any, **targets: Tensor) -> Normalised:
    """Images as a batch with targets."""
    rows, layout = model.cut(shown)
    names = [str(number) for number in range(len(shown))]
    return Normalised(rows, layout, targets, torch.arange(len(names)), names, [{}] * len(names))


def dropped(model: Any, shown: list[Tensor], kept: list[list[int]]) -> Normalised:
    """A pack of images of which some patches are left, and padding slots at its end."""
    whole = batch(model, shown)
    parts = whole.inputs.split([segment.patches for segment in whole.layout.segments], dim=1)
    rows = torch.cat([part[:, index] for part, index in zip(parts, kept, strict=True)], dim=1)
    layout = whole.layout.keep([torch.tensor(index) for index in kept])
    layout = layout.pad_to(layout.slots + 3)
    rows = torch.nn.functional.pad(rows, (0, 0, 0, 3), value=torch.nan)
    return Normalised(rows, layout, {}, whole.indices, whole.names, whole.slices)


def dropped_by_rows(model: Any, shown: Tensor, kept: list[list[int]]) -> Normalised:
    """A batch of images of one grid, of which each keeps as many patches, but others."""
    whole, index = batch(model, shown), torch.tensor(kept)
    rows = whole.inputs.gather(1, index.unsqueeze(-1).expand(-1, -1, whole.inputs.shape[-1]))
    return Normalised(rows, whole.layout.keep(index), {}, whole.indices, whole.names, whole.slices)


def _plain(model: Any) -> Any:
    return torch.stack(images((3, 5), (3, 5)))


def _several(model: Any) -> Any:
    return images((3, 5), (5, 2), (2, 7), (3, 5))


def _dropped(model: Any) -> Any:
    shown = images((3, 5), (5, 2), (2, 7))
    return {(0, 0): [dropped(model, shown, [[0, 3, 4, 7, 14], [1, 2, 9], list(range(14))])]}


def _dropped_by_rows(model: Any) -> Any:
    shown = torch.stack(images((3, 5), (3, 5)))
    return {(12, 20): [dropped_by_rows(model, shown, [[0, 3, 4, 7], [14, 1, 9, 12]])]}


def _list_of_one(model: Any) -> Any:
    return images((4, 3))


def _one_patch(model: Any) -> Any:
    return images((1, 1), (2, 3))


def _batches(model: Any) -> Any:
    return {(12, 20): [batch(model, torch.stack(images((3, 5), (3, 5)))), batch(model, images((3, 5), seed=1))]}


SHOWN: dict[str, Callable[[Any], Any]] = {
    "plain": _plain,
    "several grids": _several,
    "dropped and padded": _dropped,
    "dropped by rows": _dropped_by_rows,
    "a list of one": _list_of_one,
    "one patch": _one_patch,
    "batch after batch": _batches,
}
every = pytest.mark.parametrize("shown", list(SHOWN))
models = pytest.mark.parametrize("options", [{}, {"num_registers": 3}, {"pool": "mean", "class_token": False}], ids=str)


@torch.no_grad()
def layers_of(model: Any, shown: Any) -> list[tuple[list[Tensor], Tensor, Grid, Tensor]]:
    """Of each image its tokens by layer, -1 first, each [prefix and patches, dim]; those after the final norm; its
    grid; the numbers of its patches. Each image is in a batch of its own, by the trunk's plain path."""
    found = []
    for rows, layout in alone(model, shown):
        tokens = [model.embed(rows, layout)]
        for layer in range(len(model.blocks)):
            tokens.append(model.blocks.layer(layer, tokens[-1], layout, model.encoding.hooks))
        segment = layout.segments[0]
        found.append(([one[0] for one in tokens], model.norm(tokens[-1])[0], segment.grid, segment.indices[0]))
    return found


def alone(model: Any, shown: Any) -> list[tuple[Tensor, TokenLayout]]:
    """Each image in a batch of its own: its flat rows and its layout."""
    if not isinstance(shown, dict):
        return [model.cut(image.unsqueeze(0)) for image in shown]
    found = []
    for one in next(iter(shown.values())):
        segments = one.layout.segments
        parts = one.inputs.split([*(part.patches for part in segments), one.layout.padding], dim=1)
        for row in range(one.layout.rows):
            for part, segment in zip(parts, segments, strict=False):
                layout = TokenLayout.uniform(segment.grid, 1, num_prefix_tokens=model.num_prefix_tokens)
                indices = segment.indices.expand(one.layout.rows, -1)[row : row + 1]
                found.append((part[row : row + 1], layout.keep(indices)))
    return found
