"""Grids of three axes: an encoding over (t, y, x) in one file of a plug-in folder, and what is for two declines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sightline import plugins
from sightline.attention import attend, rotate, use_backend
from sightline.encodings import create_encoding, discovery, list_encodings
from sightline.models.block import Block
from sightline.models.config import ViTConfig
from sightline.models.trunk import Trunk
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

CLIP, OTHER = Grid(2, 3, 5), Grid(3, 2, 2)
SHAPE = {"depth": 2, "heads": 4, "dim": 48, "train_grid": CLIP}

FILE = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from torch import nn
from sightline.attention.pattern import Pattern, TableBias
from sightline.encodings import PositionEncoding, RotaryEncoding
from sightline.attention import Rotation
from sightline.tokens.layout import grid_coords

@dataclass(frozen=True)
class TubesConfig:
    base: float = 30.0

class Tubes(RotaryEncoding):
    """A third of the channel pairs turn with t, y and x each; a learned bias for each displacement of the three; and
    a learned embedding for each frame."""

    names: ClassVar = {"tubes": {}}
    Config: ClassVar = TubesConfig
    source: ClassVar = "this test"
    extrapolation: ClassVar = "the same coordinates"
    axes: ClassVar = 3

    def __init__(self, config, shape):
        super().__init__(config, shape)
        self.slopes = nn.Parameter(torch.rand(shape.depth, shape.heads, 3))
        self.frames = nn.Parameter(torch.randn(8, shape.dim))

    def added(self, layer, layout):
        if layer:
            return None
        patches = torch.cat([self.frames[one.coords[..., 0]] for one in layout.segments], dim=1)
        return layout.join(patches)

    def angles(self, coords, grid, layer):
        pairs = self.shape.head_dim // 6
        frequencies = self.config.base ** (-torch.arange(pairs).float() / pairs)
        return (coords.float().unsqueeze(-1) * frequencies).flatten(-2).unsqueeze(1)

    def pattern(self, layer, layout):
        def values(grid):
            shifts = [torch.arange(1 - side, side).abs() for side in grid]
            places = torch.stack(torch.meshgrid(*shifts, indexing="ij"), dim=-1).float()
            return -(places @ self.slopes[layer].T).permute(3, 0, 1, 2)
        return Pattern((TableBias(values),))
'''


@pytest.fixture
def tubes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The name of an encoding whose file is a plug-in, which is gone after the test."""
    (tmp_path / "tubes.py").write_text(FILE)
    list_encodings()
    monkeypatch.setattr(discovery, "_found", dict(discovery._found))
    monkeypatch.setattr(plugins, "__path__", list(plugins.__path__))
    monkeypatch.setenv(plugins.FOLDERS, os.environ.get(plugins.FOLDERS, ""))
    plugins.add(tmp_path)
    yield "tubes"
    sys.modules.pop(f"{plugins.__name__}.tubes", None)


def tokens(layout: TokenLayout, dim: int = 48) -> Tensor:
    return torch.randn(layout.rows, layout.slots, dim, generator=torch.Generator().manual_seed(0))


def by_hand(x: Tensor, encoding, grid: Grid, prefix: int) -> Tensor:
    """Softmax attention of one clip with q = k = v = x [heads, slots, head_dim], every pair looked at alone."""
    cells = [(t, y, z) for t in range(grid[0]) for y in range(grid[1]) for z in range(grid[2])]
    frequencies = 30.0 ** (-torch.arange(2).float() / 2)
    turned = x.clone()
    for slot, place in enumerate(cells, prefix):
        angle = torch.tensor(place).float().repeat_interleave(2) * frequencies.repeat(3)
        a, b = x[:, slot, 0::2], x[:, slot, 1::2]
        turned[:, slot, 0::2] = a * angle.cos() - b * angle.sin()
        turned[:, slot, 1::2] = a * angle.sin() + b * angle.cos()
    scores = turned @ turned.transpose(1, 2) / x.shape[-1] ** 0.5
    for i, one in enumerate(cells, prefix):
        for j, other in enumerate(cells, prefix):
            shift = torch.tensor([abs(a - b) for a, b in zip(one, other, strict=True)]).float()
            scores[:, i, j] -= encoding.slopes[1] @ shift
    return scores.softmax(-1) @ x


@pytest.mark.parametrize("backend", ["auto", "sdpa", "tiles", "flex"])
@torch.no_grad()
def test_attention_over_three_axes_is_what_each_pair_says(tubes: str, backend: str) -> None:
    encoding = create_encoding(tubes, **SHAPE)
    layout = TokenLayout.packed([CLIP, OTHER], num_prefix_tokens=2)
    x = tokens(layout).unflatten(-1, (4, 12)).transpose(1, 2)
    turned = rotate(x, encoding.rotation(1, layout))
    with use_backend(backend):
        found = attend(turned, turned, x, encoding.pattern(1, layout), layout)
    first = 2 + CLIP.cells
    expected = [by_hand(x[0, :, :first], encoding, CLIP, 2), by_hand(x[0, :, first:], encoding, OTHER, 2)]
    assert (found[0] - torch.cat(expected, dim=1)).abs().max() < 1e-5


def test_packed_with_another_is_each_alone_through_blocks(tubes: str) -> None:
    """Whole clips, and with tokens dropped; gradients too."""
    encoding = create_encoding(tubes, **SHAPE)
    torch.manual_seed(0)
    blocks = Trunk(Block(ViTConfig(dim=48, depth=2, heads=4), layer) for layer in range(2))

    def run(x: Tensor, layout: TokenLayout) -> Tensor:
        return blocks(x, layout, encoding.hooks)

    weights = [encoding.slopes, encoding.frames, *blocks[0].parameters()]
    pack = TokenLayout.packed([CLIP, OTHER], num_prefix_tokens=1)
    kept = [torch.tensor([0, 7, 29, 16]), torch.tensor([11, 2])]
    for layout in (pack, pack.keep(kept)):
        x = tokens(layout)
        packed = run(x, layout)
        alone = []
        for part, segment in zip(layout.split(x), layout.segments, strict=True):
            alone.append(run(part, TokenLayout((segment,), rows=1, num_prefix_tokens=1)))
        assert (packed - torch.cat(alone, dim=1)).abs().max() < 1e-5
        grads = [
            torch.autograd.grad(out.square().sum(), weights, allow_unused=True)
            for out in (packed, torch.cat(alone, dim=1))
        ]
        for one, other in zip(*grads, strict=True):
            assert (one is None) == (other is None)
            assert one is None or (one - other).norm() <= 1e-5 * other.norm() + 1e-6
    moved = pack.keep([torch.tensor([1, 7, 29, 16]), kept[1]])
    assert not torch.allclose(run(tokens(moved), moved), packed), "where a token stands changes nothing"
