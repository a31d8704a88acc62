"""Terms of a Pattern that are made of what tokens hold: vectors of each displacement that queries, keys or the
attention weights are multiplied by (Shaw et al. 2018, equations 3 and 4; iRPE, Wu et al. 2021, section 3).

`gather_by_bucket` reads them pair by pair, which its backward pass scatters back; `looked_up_by_axis` is the same by
two small matrix products an axis, forward and backward, where buckets are made of rows and columns apart.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.pattern import BiasSource, BiasTerm, Pattern
from sightline.attention.wide import at_least_float32
from sightline.tokens.cache import ByteLRUCache
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment, row_major_index

_TABLES = ByteLRUCache("buckets of displacements", 1 << 19)
_PAIRS = ByteLRUCache("buckets of pairs", 3 << 19)


class RelativeBuckets(ABC):
    """Which of so many vectors each displacement has; frozen and hashable, since what is made of it is kept.

    Attributes:
        count: how many there are, that of prefix tokens not among them.
        sides: of rows and of columns, where each bucket is one of the rows' and one of the columns':
            `sides[1] * along(0, dy) + along(1, dx)`; else None.
    """

    count: int
    sides: tuple[int, int] | None = None

    @abstractmethod
    def of(self, dy: Tensor, dx: Tensor) -> Tensor:
        """The bucket of displacements in cells, of the token whose content is used less the other: int64, of the shape
        that `dy` and `dx` broadcast to."""

    def along(self, axis: int, offset: Tensor) -> Tensor:
        """The part of a bucket that displacements along an axis are: int64, below `sides[axis]`."""
        raise NotImplementedError

    def table(self, grid: Grid, device: torch.device) -> Tensor:
        """Of each displacement on a grid: int64 [(2 rows - 1)(2 cols - 1)], row-major."""

        def make() -> Tensor:
            rows, cols = grid.planar("buckets")
            dy, dx = (torch.arange(1 - side, side, device=device) for side in (rows, cols))
            return self.of(dy.unsqueeze(1), dx.unsqueeze(0)).flatten()

        return _TABLES.get_tensor((self, grid, device), device, make) if type(grid.cells) is int else make()

    def of_pairs(self, pairs: TokenPairs) -> Tensor:
        """Of each pair, `count` where one is a prefix token: int64 [1 or rows, queries, keys]."""
        queries, keys, grid = pairs.queries, pairs.keys, pairs.keys.grid
        shift = queries.coords.unsqueeze(2) - keys.coords.unsqueeze(1) + _furthest(grid, keys.coords)
        places = row_major_index(shift, Grid(*(2 * side - 1 for side in grid)))
        index = self.table(grid, keys.coords.device)[places]
        return F.pad(index, (pairs.before_k, 0, pairs.before_q, 0), value=self.count)


@dataclass(frozen=True, eq=False)
class ContentBias(BiasTerm):
    """A vector for each bucket of displacements, the same for all heads or one each.

    Of queries: scores_ij += scale q_i . w[b(i - j)]; of keys: scores_ij += scale k_j . w[b(j - i)]; of attention, which
    adds to the output and not to the scores: out_i += sum_j attention_ij w[b(i - j)]. Its bias is 0: what it adds hangs
    on the images. Queries and keys are those that attention gets, turned where there is a rotation.

    Attributes:
        weights: [1 or heads, head_dim, buckets].
        buckets: of displacements.
        prefix_bucket: there is one more, the last, for pairs with a prefix token; else these get nothing.
        heads: how many the pattern is for.
        made_of: what is multiplied.
    """

    weights: Tensor
    buckets: RelativeBuckets
    prefix_bucket: bool
    heads: int
    made_of: BiasSource = "queries"

    def relative(self, grid: Grid, device: torch.device) -> Tensor:
        """Nothing hangs on displacements alone."""
        return torch.zeros(self.heads, *(2 * side - 1 for side in grid), device=device)


class TokenPairs(NamedTuple):
    """Which tokens ask which, of one image or of images that stand alike.

    Attributes:
        queries, keys: the patches.
        before_q, before_k: prefix tokens, which stand first.
        heads: which of the pattern's heads.
    """

    queries: Segment
    keys: Segment
    before_q: int
    before_k: int
    heads: slice = slice(None)


def content_of_scores(pattern: Pattern, q: Tensor, k: Tensor, pairs: TokenPairs) -> Tensor | None:
    """What terms of queries and keys add to the scores, or None where there are none.

    Args:
        q: [rows, heads, queries, head_dim], not scaled yet; of these heads and queries alone.
        k: [rows, heads, keys, head_dim].

    Returns:
        [rows, heads, queries, keys].
    """
    total = None
    scale = q.shape[-1] ** -0.5
    owners: tuple[tuple[BiasSource, Tensor], ...] = ("queries", q), ("keys", k)
    for made_of, owner in owners:
        terms = [term for term in pattern.terms_of(made_of) if isinstance(term, ContentBias)]
        if not terms:
            continue
        where = pairs if made_of == "queries" else _turned(pairs)
        scaled = owner * scale
        parts = [_spread(scaled @ _of_heads(term, pairs).to(q.dtype), term, where) for term in terms]
        added = functools.reduce(torch.add, parts)
        added = added if made_of == "queries" else added.transpose(-1, -2)
        total = added if total is None else total + added
    return total


def content_of_output(pattern: Pattern, attention: Tensor, pairs: TokenPairs) -> Tensor | None:
    """What terms of the attention weights [rows, heads, queries, keys] add to the output: [rows, heads, queries,
    head_dim], or None where there are none."""
    total = None
    for term in pattern.terms_of("attention"):
        assert isinstance(term, ContentBias)
        weights = _of_heads(term, pairs).to(attention.dtype)
        added = _gathered(attention, weights.shape[-1], term, pairs) @ weights.transpose(-1, -2)
        total = added if total is None else total + added
    return total


def _turned(pairs: TokenPairs) -> TokenPairs:
    return TokenPairs(pairs.keys, pairs.queries, pairs.before_k, pairs.before_q, pairs.heads)


def _of_heads(term: ContentBias, pairs: TokenPairs) -> Tensor:
    return term.weights if len(term.weights) == 1 else term.weights[pairs.heads]


def _spread(products: Tensor, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """Products of each token with each vector [rows, heads, queries, buckets] at its pairs."""
    if _has_axes(term, pairs, products):
        return looked_up_by_axis(products, term, pairs)
    return gather_by_bucket(products, term, pairs)


def _gathered(attention: Tensor, buckets: int, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """Attention of all pairs of a bucket together: [rows, heads, queries, buckets]."""
    if _has_axes(term, pairs, attention):
        return summed_by_axis(attention, term, pairs)
    return scatter_by_bucket(attention, buckets, term, pairs)


def _has_axes(term: ContentBias, pairs: TokenPairs, x: Tensor) -> bool:
    """Whether the form without look-ups is taken: on a CPU these are the faster ones (docs/LOG.md); elsewhere
    scattering many pairs into few buckets, their backward pass, is what iRPE's authors wrote a kernel for."""
    whole = pairs.queries.row_major and pairs.keys.row_major and pairs.queries.grid == pairs.keys.grid
    return term.buckets.sides is not None and whole and x.device.type != "cpu" and not torch.compiler.is_compiling()


def gather_by_bucket(products: Tensor, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """`products` [rows, heads, queries, buckets] at all pairs, one look-up each: [rows, heads, queries, keys]."""
    index = bucket_of_pairs(term.buckets, pairs)
    if products.shape[-1] == term.buckets.count and pairs.before_q + pairs.before_k:
        products = F.pad(products, (0, 1))
    return products.gather(-1, index.unsqueeze(1).expand(*products.shape[:2], -1, -1))


def scatter_by_bucket(attention: Tensor, buckets: int, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """The transpose of `gather_by_bucket`: [rows, heads, queries, keys] -> [rows, heads, queries, buckets]."""
    index = bucket_of_pairs(term.buckets, pairs)
    # One place more than there may be buckets, for what prefix tokens get where they have none.
    total = attention.new_zeros(*attention.shape[:3], term.buckets.count + 1)
    total = total.scatter_add(-1, index.unsqueeze(1).expand_as(attention), attention)
    return total[..., :buckets]


def bucket_of_pairs(buckets: RelativeBuckets, pairs: TokenPairs) -> Tensor:
    """The bucket of each pair, `count` where one is a prefix token: int64 [1 or rows, queries, keys]."""
    queries, keys = pairs.queries, pairs.keys

    if not (queries.complete and keys.complete and type(keys.grid.cells) is int):
        return buckets.of_pairs(pairs)
    device = keys.coords.device
    key = (buckets, queries.cache_key, keys.cache_key, pairs.before_q, pairs.before_k, device)
    return _PAIRS.get_tensor(key, device, lambda: buckets.of_pairs(pairs))


def _furthest(grid: Grid, like: Tensor) -> Tensor:
    return torch.stack([torch.full((), side - 1, dtype=like.dtype, device=like.device) for side in grid])


def looked_up_by_axis(products: Tensor, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """As `gather_by_bucket`, of whole grids, without a look-up: buckets of columns become columns by one product, and
    those of rows become rows by another."""
    before_q, before_k, count = pairs.before_q, pairs.before_k, term.buckets.count
    grid = pairs.keys.grid
    to_rows, to_cols = _one_hot(term.buckets, grid, products)
    rows, cols = grid.planar("buckets")
    leading = products.shape[:2]
    x = products[:, :, before_q:, :count].reshape(-1, rows, cols, to_rows.shape[-1], to_cols.shape[-1])
    # [cols that ask, all else, buckets of columns] x [cols that ask, buckets of columns, cols].
    x = x.permute(2, 0, 1, 3, 4).flatten(1, 3) @ to_cols.transpose(1, 2)
    x = x.unflatten(1, (-1, rows, to_rows.shape[-1])).permute(1, 2, 3, 0, 4).flatten(3)
    # [all, rows that ask, rows, (cols that ask, cols)].
    x = (to_rows @ x).unflatten(-1, (cols, cols)).transpose(2, 3)
    x = x.reshape(*leading, rows * cols, rows * cols)
    if not before_q + before_k:
        return x
    if not term.prefix_bucket:
        return F.pad(x, (before_k, 0, before_q, 0))
    left = products[:, :, before_q:, count:].expand(-1, -1, -1, before_k)
    top = products[:, :, :before_q, count:].expand(-1, -1, -1, before_k + rows * cols)
    return torch.cat((top, torch.cat((left, x), dim=-1)), dim=-2)


def summed_by_axis(attention: Tensor, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """The transpose of `looked_up_by_axis`: as `summed`, of whole grids, without scattering."""
    before_q, before_k = pairs.before_q, pairs.before_k
    grid = pairs.keys.grid
    to_rows, to_cols = _one_hot(term.buckets, grid, attention)
    rows, cols = grid.planar("buckets")
    x = attention[:, :, before_q:, before_k:].reshape(-1, rows, cols, rows, cols)
    x = to_rows.transpose(1, 2) @ x.transpose(2, 3).flatten(3)
    # [all, rows that ask, buckets of rows, cols that ask, cols].
    x = x.unflatten(-1, (cols, cols)).permute(3, 0, 1, 2, 4).flatten(1, 3) @ to_cols
    x = x.unflatten(1, (-1, rows, to_rows.shape[-1])).permute(1, 2, 0, 3, 4)
    x = x.reshape(*attention.shape[:2], rows * cols, term.buckets.count)
    if not term.prefix_bucket:
        return F.pad(x, (0, 0, before_q, 0))
    left = attention[:, :, before_q:, :before_k].sum(-1, keepdim=True)
    top = F.pad(attention[:, :, :before_q].sum(-1, keepdim=True), (term.buckets.count, 0))
    return torch.cat((top, torch.cat((x, left), dim=-1)), dim=-2)


def _one_hot(buckets: RelativeBuckets, grid: Sequence[int], like: Tensor) -> list[Tensor]:
    """For rows and for columns, 1 where a bucket is that of one that asks and one that is asked: [side, side, buckets
    of the axis]."""
    assert buckets.sides is not None
    made = []
    for axis, (side, count) in enumerate(zip(grid, buckets.sides, strict=True)):
        place = torch.arange(side, device=like.device)
        index = buckets.along(axis, place.unsqueeze(1) - place.unsqueeze(0))
        made.append((index.unsqueeze(-1) == torch.arange(count, device=like.device)).to(like.dtype))
    return made


def with_output(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, pattern: Pattern, pairs: TokenPairs) -> Tensor:
    """`explicit_attention`, its softmax in float32 at least, and what terms of the attention weights add to it."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    attention = at_least_float32(scores).softmax(dim=-1).to(v.dtype)
    out, added = attention @ v, content_of_output(pattern, attention, pairs)
    return out if added is None else out + added.to(out.dtype)
