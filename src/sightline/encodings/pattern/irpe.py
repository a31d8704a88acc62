"""iRPE: a learned bias or vector for each bucket of displacements (Wu et al. 2021)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sightline.attention.content_bias import ContentBias, RelativeBuckets
from sightline.attention.pattern import BiasSource, BiasTerm, Pattern, TableBias
from sightline.encodings.base import PatternEncoding, TrunkShape
from sightline.errors import InputError
from sightline.io.config import config_dataclass
from sightline.tokens.grid import Grid

Method = Literal["product", "cross", "euclidean", "quantised"]
On = Literal["q", "k", "v", "qk", "qv", "kv", "qkv"]
Part = Literal["table", "rows", "cols"]

_MADE_OF: dict[str, BiasSource] = {"q": "keys", "k": "queries", "v": "attention"}


@config_dataclass
class IrpeConfig:
    """Configuration of `Irpe`.

    Attributes:
        method: how a displacement becomes a bucket: `product` of the rows' and the columns', `cross` (a table for rows
            and one for columns, summed), of the `euclidean` distance, or of its square (`quantised`).
        mode: `contextual` multiplies queries, keys or attention by vectors; `bias` adds a number, to scores alone.
        on: which of q, k and v have a table of their own: that on k is multiplied by the query, that on q by the key,
            that on v by the attention weights, in the paper's words.
        shared_heads: one table for all heads, else one each.
        ratio: alpha of the piecewise function, whose beta and gamma are 2 and 8 times as large.
    """

    method: Method = "product"
    mode: Literal["contextual", "bias"] = "contextual"
    on: On = "k"
    shared_heads: bool = True
    ratio: Annotated[float, Field(ge=1e-3, le=64)] = 1.9

    def __post_init__(self) -> None:
        if self.mode == "bias" and "v" in self.on:
            said = f"on {self.on!r}: a bias is added to scores, not to values (expected 'q', 'k' or 'qk')"
            raise InputError(said, field="on", value=self.on)


def piecewise(offset: Tensor, ratio: float) -> Tensor:
    """iRPE's piecewise index function, as the public code rounds: exact up to alpha, then by the logarithm, at most
    beta.

    x where |x| <= alpha, else sign(x) trunc(min(round(alpha + ln(|x| / alpha) / ln(gamma / alpha) (beta - alpha)),
    beta)), with alpha = ratio, beta = 2 ratio, gamma = 8 ratio; halves are rounded to even. What the public code
    gives is whole, though beta is not: its last cast to int64 truncates.

    Args:
        offset: whole numbers, int64 or float, of any shape.

    Returns:
        int64 of the same shape.
    """
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio
    size = offset.abs().float()
    # Written as there: halves may fall to either side by the last bit.
    far = alpha + (size.clamp(min=1.0) / alpha).log() / math.log(gamma / alpha) * (beta - alpha)
    return (torch.where(size <= alpha, size, far.round().clamp(max=beta)).trunc() * offset.sign()).long()


@dataclass(frozen=True)
class IrpeBuckets(RelativeBuckets):
    """Buckets of one table; `table` of the cross method stands for `rows` and `cols`, which are tables of their own."""

    method: Method
    ratio: float
    part: Part = "table"

    @property
    def reach(self) -> int:
        """The greatest value of the piecewise function."""
        return int(2 * self.ratio)

    @property
    def sides(self) -> tuple[int, int] | None:  # type: ignore[override]
        one = 2 * self.reach + 1
        by_axis = {"product": (one, one), "rows": (one, 1), "cols": (1, one)}
        return by_axis.get(self.part if self.method == "cross" else self.method)

    @property
    def count(self) -> int:  # type: ignore[override]
        return math.prod(self.sides or (2 * self.reach + 1,))

    def along(self, axis: int, offset: Tensor) -> Tensor:
        assert self.sides is not None
        return torch.zeros_like(offset) if self.sides[axis] == 1 else piecewise(offset, self.ratio) + self.reach

    def of(self, dy: Tensor, dx: Tensor) -> Tensor:
        if self.sides is not None:
            return self.along(0, dy) * self.sides[1] + self.along(1, dx)
        squared = dy.square() + dx.square()
        distance = squared.float().sqrt().round() if self.method == "euclidean" else squared
        return piecewise(distance, self.ratio) + self.reach


class Irpe(PatternEncoding):
    """What a pair adds is a bias, or a product with a vector, of the bucket of its displacement (Wu et al. 2021).

    Contextual, on k: scores_ij += scale q_i . w_k[b(i - j)]; on q: scores_ij += scale k_j . w_q[b(j - i)]; on v:
    out_i += sum_j attention_ij w_v[b(i - j)], with scale = head_dim^-0.5. Bias: scores_ij += b_k[b(i - j)] +
    b_q[b(j - i)]. Pairs with a prefix token have a bucket of their own, the last. Displacements are of the real grid,
    where the public code takes the square root of the number of tokens for both sides, and is wrong for any that are
    not square. Where an encoding that turns queries and keys is joined to it, the turned ones are multiplied.

    Parameters `k_table`, ... (`k_rows`, `k_cols` of the cross method) are zero at first, as published: contextual on q
    and k [depth, 1 or heads, head_dim, buckets], on v [depth, 1 or heads, buckets, head_dim], bias [depth, 1 or heads,
    buckets].
    """

    names: ClassVar = {
        "irpe": {},
        "irpe_qk": {"on": "qk"},
        "irpe_qkv": {"on": "qkv"},
        "irpe_bias": {"mode": "bias"},
    }
    Config: ClassVar = IrpeConfig
    source: ClassVar = "iRPE (Wu et al. 2021), section 3; Shaw et al. (2018), equations 3 and 4"
    extrapolation: ClassVar = (
        "the same buckets; displacements beyond the greatest have the last one; nothing is resized"
    )

    def __init__(self, config: IrpeConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        heads = 1 if config.shared_heads else shape.heads
        for where in config.on:
            for part, buckets in self.buckets.items():
                count = buckets.count + (shape.num_prefix_tokens > 0)
                inner = {"q": (shape.head_dim, count), "k": (shape.head_dim, count), "v": (count, shape.head_dim)}
                size = (count,) if config.mode == "bias" else inner[where]
                self.register_parameter(f"{where}_{part}", nn.Parameter(torch.zeros(shape.depth, heads, *size)))

    @cached_property
    def buckets(self) -> dict[Part, IrpeBuckets]:
        """Of each table: one, or one for rows and one for columns."""
        parts: tuple[Part, ...] = ("rows", "cols") if self.config.method == "cross" else ("table",)
        return {part: IrpeBuckets(self.config.method, self.config.ratio, part) for part in parts}

    def layer_pattern(self, layer: int) -> Pattern:
        prefix, heads = self.shape.num_prefix_tokens > 0, self.shape.heads
        terms: list[BiasTerm] = []
        for where, (part, buckets) in itertools.product(self.config.on, self.buckets.items()):
            table = getattr(self, f"{where}_{part}")[layer]
            if self.config.mode == "contextual":
                weights = table.transpose(1, 2) if where == "v" else table
                terms.append(ContentBias(weights, buckets, prefix, heads, _MADE_OF[where]))
            else:
                table = table.expand(heads, -1)
                values = partial(_by_displacement, table, buckets, turned=where == "k")
                terms.append(TableBias(values, table[:, -1].expand(3, -1) if prefix else None))
        return Pattern(tuple(terms))


def _by_displacement(table: Tensor, buckets: RelativeBuckets, grid: Grid, *, turned: bool) -> Tensor:
    """Numbers of buckets [heads, buckets] by displacement key - query; `turned` where buckets are of query - key."""
    values = table[:, buckets.table(grid, table.device)]
    values = values.unflatten(1, (2 * grid.rows - 1, 2 * grid.cols - 1))
    return values.flip(1, 2) if turned else values
