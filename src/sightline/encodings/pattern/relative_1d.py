"""One-dimensional relative attention: a vector for each offset in the sequence of patches (ViT appendix D.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sightline.attention.content_bias import ContentBias, RelativeBuckets, TokenPairs
from sightline.attention.pattern import BiasSource, Pattern
from sightline.encodings.base import PatternEncoding, TrunkShape
from sightline.io.config import config_dataclass
from sightline.tokens.segment import Segment


@config_dataclass
class Relative1dConfig:
    """Configuration of `Relative1d`; the paper says of none of it, and its code is not public.

    Attributes:
        shared: one table for all layers, else one a layer.
        per_head: vectors of each head, else the same for all.
        scaled: the logits of positions are divided by sqrt(head_dim), as those of contents (Shaw et al. 2018).
        prefix: prefix tokens are the first of the sequence (the class token is position 0), else no pair with one has
            a vector.
        keys: keys are multiplied by vectors of offsets too (scenic's AxialResNet).
        values: vectors of offsets are added to the values too (Shaw et al. 2018, equation 3; scenic's AxialResNet).
    """

    shared: bool = False
    per_head: bool = False
    scaled: bool = True
    prefix: bool = True
    keys: bool = False
    values: bool = False


@dataclass(frozen=True)
class Offsets(RelativeBuckets):
    """Places in raster order, that of the token whose content is used less the other's, on rows of `width` cells.

    Attributes:
        width: cells of a row.
        reach: the longest offset; what is farther apart counts as this far.
        before: prefix tokens, which are the first of the sequence; None where they have no place in it.
    """

    width: int
    reach: int
    before: int | None = None

    @property
    def count(self) -> int:  # type: ignore[override]
        return 2 * self.reach + 1

    def of(self, dy: Tensor, dx: Tensor) -> Tensor:
        return self._bucket(dy * self.width + dx)

    def of_pairs(self, pairs: TokenPairs) -> Tensor:
        if self.before is None:
            return super().of_pairs(pairs)
        asks = self._places(pairs.queries, pairs.before_q, pairs)
        asked = self._places(pairs.keys, pairs.before_k, pairs)
        return self._bucket(asks.unsqueeze(2) - asked.unsqueeze(1))

    def _places(self, segment: Segment, before: int, pairs: TokenPairs) -> Tensor:
        """int64 [1 or rows, prefix tokens and patches]."""
        y, x = segment.coords.unbind(-1)
        # Of a block of the patches that ask there are none before.
        patches = y * self.width + x + max(pairs.before_q, pairs.before_k)
        first = torch.arange(before, device=patches.device).expand(patches.shape[0], -1)
        return torch.cat((first, patches), dim=1)

    def _bucket(self, offset: Tensor) -> Tensor:
        return offset.clamp(-self.reach, self.reach) + self.reach


class Relative1d(PatternEncoding):
    """score_ij = q_i . k_j + q_i . r[p_i - p_j], p the place in raster order (ViT appendix D.4).

    "We use the original query (the content of query), but use relative positional embeddings as keys": both products
    are divided by sqrt(head_dim) unless `scaled` is off. N tokens in training have 2N - 1 offsets, the class token
    among them as place 0. The end of a row and the start of the next are neighbours.

    For other grids the paper has no rule. Ours: a displacement (dy, dx) keeps the offset dy W + dx that it has on the
    training grid's rows of W cells, so that the neighbour below stays that; offsets beyond the table's are its last.

    `tables`, and `key_tables` and `value_tables` where they are asked for, are [1 or depth, 1 or heads, 2N - 1,
    head_dim], from offset -(N - 1) on; keys are multiplied by the vector of p_j - p_i, values have that of p_i - p_j.
    """

    names: ClassVar = {"relative_1d": {}}
    Config: ClassVar = Relative1dConfig
    source: ClassVar = "ViT (2021), appendix D.4; Shaw et al. (2018), equations 3 and 4"
    extrapolation: ClassVar = "a displacement keeps its offset on the training grid's rows; beyond the table its last"

    def __init__(self, config: Relative1dConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        before = shape.num_prefix_tokens if config.prefix else None
        self.offsets = Offsets(shape.train_grid.cols, shape.train_grid.cells + (before or 0) - 1, before)
        sizes = 1 if config.shared else shape.depth, shape.heads if config.per_head else 1

        def table() -> nn.Parameter:
            values = torch.empty(*sizes, self.offsets.count, shape.head_dim)
            return nn.Parameter(nn.init.trunc_normal_(values, std=0.02))

        self.tables = table()
        self.key_tables = table() if config.keys else None
        self.value_tables = table() if config.values else None

    def layer_pattern(self, layer: int) -> Pattern:
        given: dict[BiasSource, nn.Parameter | None] = {
            "queries": self.tables,
            "keys": self.key_tables,
            "attention": self.value_tables,
        }
        terms = []
        for made_of, tables in given.items():
            if tables is not None:
                weights = tables[0 if self.config.shared else layer].transpose(-1, -2)
                if made_of != "attention" and not self.config.scaled:
                    # Terms of scores are divided by it.
                    weights = weights * self.shape.head_dim**0.5
                terms.append(ContentBias(weights, self.offsets, False, self.shape.heads, made_of))
        return Pattern(tuple(terms))
