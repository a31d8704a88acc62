"""Layers of a trunk that are alike, as those see them who count operations and memory: known without a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sightline.models.config import ViTConfig
from sightline.models.merging import merged_grid
from sightline.tokens.grid import Grid


class AttentionCost(NamedTuple):
    """What attention computes of an image in all layers of a stage together.

    Attributes:
        slots: tokens with queries, keys and values; those too that an image is filled up with.
        pairs: (query, key) that meet.
    """

    slots: int
    pairs: int


@dataclass(frozen=True)
class StageSpec:
    """One of those that `Model.stages` names; here each token meets all of its image.

    Attributes:
        config: of these layers: `depth` is their number, `dim` and `heads` their own.
        made_for: the grid that their position encoding is made for.
        merged: how often patches were merged before: one is of 2**merged x 2**merged of the embedder's.
        entry: multiplications of a token on the way into it.
    """

    config: ViTConfig
    made_for: Grid
    merged: int = 0
    entry: int = 0

    def tokens(self, patches: int, grid: Grid | None = None) -> int:
        """Of an image in it, prefix tokens too.

        Args:
            patches: in which it was embedded; grid: of these, where it is known and all are there.
        """
        if not self.merged:
            return patches + self.config.num_prefix_tokens
        cells = -(-patches // 4**self.merged) if grid is None else merged_grid(grid, self.merged).cells
        return cells + self.config.num_prefix_tokens

    def work(self, patches: int, grid: Grid | None = None) -> AttentionCost:
        """Of attention; of an image of which only the number of patches is known, as of a square one."""
        tokens = self.tokens(patches, grid)
        return AttentionCost(self.config.depth * tokens, self.config.depth * tokens**2)

    def keys(self, patches: int, grid: Grid | None = None) -> int:
        """How many keys a query of it meets, in the mean over layers."""
        slots, pairs = self.work(patches, grid)
        return -(-pairs // slots)
