"""Tables of an encoding that was made for another grid, as those of this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from sightline.encodings.added.factorized import Factorized
from sightline.encodings.added.learned_1d import Learned1d
from sightline.encodings.added.learned_2d import Learned2d
from sightline.encodings.base import PositionEncoding
from sightline.encodings.pattern.rpe_learned import RpeLearned
from sightline.tokens.grid import Grid


def square_of(
    state: Mapping[str, Tensor], make: Callable[[int], PositionEncoding]
) -> tuple[int, PositionEncoding] | None:
    """The side of the square that an encoding's weights are of, and that encoding with these, or None.

    Args:
        state: by name, relative to the encoding; make: the encoding for a square of such a side.
    """
    for side in range(1, 257):
        # Shapes alone: nothing is drawn.
        with torch.device("meta"):
            found = make(side)
        if fits(found, state):
            found.load_state_dict(state, strict=False, assign=True)
            return side, found
    return None


def fits(encoding: PositionEncoding, state: Mapping[str, Tensor]) -> bool:
    """Whether its parameters have the shapes of these weights."""
    return all(name in state and state[name].shape == own.shape for name, own in encoding.named_parameters())


@torch.no_grad()
def tables_of(given: PositionEncoding, encoding: PositionEncoding) -> dict[str, Tensor] | None:
    """The tables of `given` with which `encoding`, the same one made for another grid, gives on its own grid what
    `given` gives there, by name; those that fit are left out. None where no tables of its size do."""
    made = {}
    for (place, part), old in zip(encoding.named_modules(), given.modules(), strict=True):
        for name, own in part.named_parameters(recurse=False):
            if own.shape != getattr(old, name).shape:
                table = _on_grid_of(part, old, name)
                if table is None:
                    return None
                made[f"{place}.{name}".removeprefix(".")] = table
    return made


def _on_grid_of(part: torch.nn.Module, old: torch.nn.Module, name: str) -> Tensor | None:
    if isinstance(part, RpeLearned) and isinstance(old, RpeLearned):
        cells = old.tables.shape[1] - 3 * (part.shape.num_prefix_tokens > 0)
        tables = torch.stack([old.resized(one[:cells], part.shape.train_grid) for one in old.tables])
        return torch.cat((tables, old.tables[:, cells:]), dim=1)
    if isinstance(part, Learned1d) and isinstance(old, Learned1d) and name == "table":
        return old.embedding(part.shape.train_grid)
    if isinstance(part, Learned2d) and isinstance(old, Learned2d):
        return old.embedding(Grid(part.side, part.side))
    if isinstance(part, Factorized) and isinstance(old, Factorized):
        grid = part.shape.train_grid
        # Tables that are stretched to the longer side are as long for all images of one shape.
        told = old.config.new_grid != "aspect" or old.config.coordinates == "fractional" or grid.rows == grid.cols
        return old.along(part.tables.index(name), grid, old.device) if told else None
    return None
