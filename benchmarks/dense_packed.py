"""A training step (forward, backward, AdamW) of segmentation on images of every size: in a pack, and padded."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from measure import Work, clock, interleave, row
from torch import Tensor

from sightline.data.batch import Batch, normalize
from sightline.data.batch import collate_packed as packed_rows
from sightline.data.targets import IGNORE
from sightline.models import Model, create_model
from sightline.tasks.base import Task, predict_batch, task_of
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import unpatchify

# VOC's classes; sides of images, whose areas are a quarter to all of 256 px squared.
_CLASSES, _PATCH, _SIDE = 21, 16, 256


def _grids(images: int) -> list[Grid]:
    """Of images of aspects 1:3 to 3:1 (their logarithm uniform) and of areas that are uniform too."""
    draws = torch.rand(images, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    found = []
    for aspect, area in draws:
        side, shape = _SIDE / _PATCH * math.sqrt(0.25 + 0.75 * area), 3 ** (aspect - 0.5)
        found.append(Grid(max(1, round(side / shape)), max(1, round(side * shape))))
    return found


def _batch(model: Model, images: int) -> Batch:
    """Images of noise with labels of noise, in one row."""
    torch.manual_seed(1)
    grids = _grids(images)
    cut = [
        torch.randint(0, 256, (grid.cells, model.image_rows.patchifier.patch_dim), dtype=torch.uint8) for grid in grids
    ]
    labels = [torch.randint(_CLASSES, (g.rows * _PATCH, g.cols * _PATCH), dtype=torch.uint8) for g in grids]
    rows, layout = packed_rows(cut, grids, [None] * images, model.num_prefix_tokens)
    return Batch(rows, layout, {"pixels": labels}, torch.arange(images), ["noise"] * images, [{}] * images)


class Padded:
    """Images [images, slots] each in a row of its own, and a mask of the keys that are there."""

    def __init__(self, model: Model, batch: Batch, place: Callable[[Grid, Tensor], Tensor], grid: Grid) -> None:
        """Args: place: numbers of an image's patches to their slots; grid: that of a row's slots."""
        grids = [segment.grid for segment in batch.layout.segments]
        self.model, self.grid = model, grid
        self.inputs = batch.inputs.new_zeros(len(grids), grid.cells, batch.inputs.shape[2])
        there = torch.zeros(len(grids), grid.cells, dtype=torch.bool)
        labels = torch.full((len(grids), grid.cells, _PATCH**2), IGNORE, dtype=torch.uint8)
        added, first = model.encoding.added(0, batch.layout), 0
        assert added is not None
        self.added = added.new_zeros(len(grids), grid.cells, added.shape[2])
        for number, (own, label) in enumerate(zip(grids, batch.targets["pixels"], strict=True)):
            slots = place(own, torch.arange(own.cells))
            there[number, slots] = True
            self.inputs[number, slots] = batch.inputs[0, first : first + own.cells]
            self.added[number, slots] = added[0, first : first + own.cells]
            pieces = label.unflatten(0, (own.rows, _PATCH)).unflatten(2, (own.cols, _PATCH)).transpose(1, 2)
            labels[number, slots] = pieces.reshape(own.cells, -1)
            first += own.cells
        self.mask = there[:, None, None]
        self.pixels = unpatchify(labels, grid, _PATCH)[:, 0].long()
        self.layout = batch.layout

    def loss(self, dtype: str) -> Tensor:
        """The mean over pixels that have a class, by the model's own parts."""
        # Typed as modules, its parts would not be known to be called so.
        model: Any = self.model
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            rows = normalize(self.inputs, model.config.mean, model.config.std)
            x = model.patch_embed(rows, self.layout).float() + self.added
            for block in model.blocks:
                x = x + self._attended(block.attn, block.norm1(x))
                x = x + block.mlp(block.norm2(x))
            logits = unpatchify(model.head.fc(model.norm(x)), self.grid, _PATCH)
        return F.cross_entropy(logits.float(), self.pixels, ignore_index=IGNORE)

    def _attended(self, part: Any, x: Tensor) -> Tensor:
        q, k, v = part.qkv(x).unflatten(-1, (3, part.num_heads, part.head_dim)).permute(2, 0, 3, 1, 4)
        return part.proj(F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask).transpose(1, 2).flatten(2))


def _packed_loss(model: Model, task: Task, batch: Batch, dtype: str) -> Tensor:
    """As the training loop computes it."""
    total, units = task.loss(predict_batch(model, batch, dtype), batch.targets, batch.layout)
    return total / units


def _step(model: Model, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> None:
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


def _ways(model: Model, batch: Batch) -> dict[str, Padded]:
    """To the longest sequence, as padded ViTs are; to the largest height and width, as detectors pad their images."""
    grids = [segment.grid for segment in batch.layout.segments]
    longest = Grid(1, max(grid.cells for grid in grids))
    box = Grid(max(grid.rows for grid in grids), max(grid.cols for grid in grids))
    return {
        "padded to the longest": Padded(model, batch, lambda _, patches: patches, longest),
        "padded to the largest sides": Padded(
            model, batch, lambda grid, patches: patches // grid.cols * box.cols + patches % grid.cols, box
        ),
    }


def packed(rounds: int, quick: bool) -> list[dict[str, Any]]:
    """Steps of one model, whose weights all ways share."""
    images, depth, rows = 4 if quick else 16, 1 if quick else 4, []
    for dtype in ("float32",) if quick else ("float32", "bfloat16"):
        torch.manual_seed(0)
        model = create_model(
            "vit_tiny_patch16", depth=depth, encoding="sincos_2d", pool="mean", image_size=_SIDE,
            num_classes=_CLASSES, head="pix", task="segmentation",
        ).train()  # fmt: skip
        batch, task = _batch(model, images), task_of(model)
        padded = _ways(model, batch)
        losses = {"packed": partial(_packed_loss, model, task, batch, dtype)}
        losses |= {name: partial(way.loss, dtype) for name, way in padded.items()}
        exact, allowed = float(losses["packed"]().detach()), 1e-5 if dtype == "float32" else 1e-3
        assert all(abs(float(loss().detach()) / exact - 1) < allowed for loss in losses.values())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        works: dict[str, Work] = {name: partial(_step, model, optimizer, loss) for name, loss in losses.items()}
        times = interleave(works, rounds, by=clock())
        for name, way in padded.items():
            factor = way.grid.cells * images / batch.layout.slots
            said = {
                "part": "packed", "model": f"vit_tiny_patch16, depth {depth}", "encoding": "sincos_2d", "head": "pix",
                "classes": _CLASSES, "images": images, "patches": batch.layout.slots, "dtype": dtype,
                "clock": clock().__name__, "wanted": round(0.85 * factor, 3), "padding_factor": round(factor, 3),
            }  # fmt: skip
            rows.append(row("dense", "packed", name, times, {}, **said))
    return rows
