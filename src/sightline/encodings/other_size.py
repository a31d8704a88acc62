"""Tables of an encoding that was made for square images of another size, as those of this one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from sightline.encodings.added.factorized import Factorized
from sightline.encodings.added.learned_1d import Learned1d
from sightline.encodings.base import PositionEncoding
from sightline.encodings.interpolate import resize_table
from sightline.encodings.pattern.rpe_learned import RpeLearned
from sightline.grid import Grid


def with_own_tables(encoding: PositionEncoding, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights whose tables have the encoding's own size, by the rule that it has for other grids; those that fit, and
    those that are not of a square, stay as they are.

    Args:
        state: by name, relative to the encoding.
    """
    made = dict(state)
    for place, part in encoding.named_modules():
        if isinstance(part, PositionEncoding) and part.rule is not None and len(part.shape.train_grid) == 2:
            for name, own in part.named_parameters(recurse=False):
                key = f"{place}.{name}".removeprefix(".")
                if name != "prefix" and key in made and made[key].shape != own.shape:
                    made[key] = _resized(part, made[key], own)
    return made


def _resized(part: PositionEncoding, given: Tensor, own: Tensor) -> Tensor:
    grid = part.shape.train_grid
    if isinstance(part, RpeLearned):
        cells = given.shape[1] - 3 * (part.shape.num_prefix_tokens > 0)
        side = (math.isqrt(cells) + 1) // 2
        if cells != (2 * side - 1) ** 2:
            return given
        # Its rule alone is asked for: nothing is drawn.
        with torch.device("meta"):
            there = RpeLearned(part.config, replace(part.shape, train_grid=Grid(side, side)))
        tables = torch.stack([there.resized(one[:cells], grid) for one in given])
        return torch.cat((tables, given[:, cells:]), dim=1)
    rule, side = part.config.interpolation, math.isqrt(len(given))
    if isinstance(part, Factorized):
        return resize_table(given, Grid(len(given), 1), Grid(len(own), 1), rule)
    square = Grid(side, side)
    new = grid if isinstance(part, Learned1d) else Grid(*[math.isqrt(len(own))] * 2)
    return resize_table(given, square, new, rule) if square.cells == len(given) else given
