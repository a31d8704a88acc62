"""Terms of a Pattern that are made of what tokens hold: vectors of each displacement that queries, keys or the
attention weights are multiplied by (Shaw et al. 2018, equations 3 and 4; iRPE, Wu et al. 2021, section 3).

`gather_by_bucket` reads them pair by pair, which its backward pass scatters back; `looked_up_by_axis` is the same by
two small matrix products an axis, forward and backward, where buckets are made of rows and columns apart.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.pattern import BiasSource, BiasTerm, Pattern
from sightline.attention.spreading import displacement_places
from sightline.attention.wide import at_least_float32
from sightline.tokens.cache import ByteLRUCache
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment

_TABLES = ByteLRUCache("buckets of displacements", 1 << 19)
_PAIRS = ByteLRUCache("buckets of pairs", 3 << 19)


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

        return _TABLES.get_tensor((self, grid, device), device, make)

    def of_pairs(self, pairs: TokenPairs) -> Tensor:
        """Of each pair, `count` where one is a prefix token: int64 [1 or rows, queries, keys]."""
        queries, keys, grid = pairs.queries, pairs.keys, pairs.keys.grid
        # Of the token whose content is used less the other: from the keys to the queries.
        places = displacement_places(keys.coords, queries.coords, grid).transpose(1, 2)
        index = self.table(grid, keys.coords.device)[places]
        return F.pad(index, (pairs.before_k, 0, pairs.before_q, 0), value=self.count)


def bucket_of_pairs(buckets: RelativeBuckets, pairs: TokenPairs) -> Tensor:
    """`RelativeBuckets.of_pairs`, kept for whole grids."""
    queries, keys = pairs.queries, pairs.keys
    if not (queries.complete and keys.complete):
        return buckets.of_pairs(pairs)
    device = keys.coords.device
    key = (buckets, queries.cache_key, keys.cache_key, pairs.before_q, pairs.before_k, device)
    return _PAIRS.get_tensor(key, device, lambda: buckets.of_pairs(pairs))


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

    def weights_of(self, heads: slice, like: Tensor) -> Tensor:
        """Those of some heads, in the precision of a tensor."""
        return (self.weights if len(self.weights) == 1 else self.weights[heads]).to(like.dtype)

    def by_axis(self, pairs: TokenPairs, x: Tensor) -> bool:
        """Whether the form without look-ups is taken: a CPU looks up faster; elsewhere scattering many
        pairs into few buckets, their backward pass, is what iRPE's authors wrote a kernel for."""
        whole = pairs.queries.row_major and pairs.keys.row_major and pairs.queries.grid == pairs.keys.grid
        return self.buckets.sides is not None and whole and x.device.type != "cpu" and not torch.compiler.is_compiling()


def content_of_scores(pattern: Pattern, q: Tensor, k: Tensor, pairs: TokenPairs) -> Tensor | None:
    """What terms of queries and keys add to the scores, or None where there are none.

    Args:
        q: [rows, heads, queries, head_dim], not scaled yet; of these heads and queries alone.
        k: [rows, heads, keys, head_dim].

    Returns:
        [rows, heads, queries, keys].
    """
    of_keys = TokenPairs(pairs.keys, pairs.queries, pairs.before_k, pairs.before_q, pairs.heads)

    def spread(owner: Tensor, term: BiasTerm, where: TokenPairs) -> Tensor:
        assert isinstance(term, ContentBias)
        products = (owner * owner.shape[-1] ** -0.5) @ term.weights_of(pairs.heads, q)
        return (looked_up_by_axis if term.by_axis(where, products) else gather_by_bucket)(products, term, where)

    parts = []
    if terms := pattern.terms_of("queries"):
        parts.append(functools.reduce(torch.add, [spread(q, term, pairs) for term in terms]))
    if terms := pattern.terms_of("keys"):
        parts.append(functools.reduce(torch.add, [spread(k, term, of_keys) for term in terms]).transpose(-1, -2))
    return functools.reduce(torch.add, parts) if parts else None


def content_of_output(pattern: Pattern, attention: Tensor, pairs: TokenPairs) -> Tensor | None:
    """What terms of the attention weights [rows, heads, queries, keys] add to the output: [rows, heads, queries,
    head_dim], or None where there are none."""
    parts = []
    for term in pattern.terms_of("attention"):
        assert isinstance(term, ContentBias)
        weights = term.weights_of(pairs.heads, attention)
        summed = summed_by_axis if term.by_axis(pairs, attention) else scatter_by_bucket
        parts.append(summed(attention, term, pairs) @ weights.transpose(-1, -2))
    return functools.reduce(torch.add, parts) if parts else None


def gather_by_bucket(products: Tensor, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """`products` [rows, heads, queries, buckets] at all pairs, one look-up each: [rows, heads, queries, keys]."""
    index = bucket_of_pairs(term.buckets, pairs)
    if products.shape[-1] == term.buckets.count and pairs.before_q + pairs.before_k:
        products = F.pad(products, (0, 1))
    return products.gather(-1, index.unsqueeze(1).expand(*products.shape[:2], -1, -1))


def scatter_by_bucket(attention: Tensor, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """The transpose of `gather_by_bucket`: [rows, heads, queries, keys] -> [rows, heads, queries, buckets]."""
    index = bucket_of_pairs(term.buckets, pairs)
    # One place more than there may be buckets, for what prefix tokens get where they have none.
    total = attention.new_zeros(*attention.shape[:3], term.buckets.count + 1)
    total = total.scatter_add(-1, index.unsqueeze(1).expand_as(attention), attention)
    return total if term.prefix_bucket else total[..., :-1]


def looked_up_by_axis(products: Tensor, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """As `gather_by_bucket`, of whole grids, without a look-up: buckets of columns become columns by one product, and
    those of rows become rows by another."""
    before_q, before_k, count = pairs.before_q, pairs.before_k, term.buckets.count
    to_rows, to_cols = _one_hot(term.buckets, pairs.keys.grid, products)
    x = products[:, :, before_q:, :count].unflatten(2, pairs.keys.grid)
    x = x.unflatten(-1, (to_rows.shape[-1], to_cols.shape[-1]))
    # From rows and columns that ask (y, x) and buckets (r, c) to those that are asked (i, j).
    x = torch.einsum("bhyxrj,yir->bhyxij", torch.einsum("bhyxrc,xjc->bhyxrj", x, to_cols), to_rows)
    x = x.flatten(4).flatten(2, 3)
    if not before_q + before_k:
        return x
    if not term.prefix_bucket:
        return F.pad(x, (before_k, 0, before_q, 0))
    left = products[:, :, before_q:, count:].expand(-1, -1, -1, before_k)
    top = products[:, :, :before_q, count:].expand(-1, -1, -1, before_k + x.shape[-1])
    return torch.cat((top, torch.cat((left, x), dim=-1)), dim=-2)


def summed_by_axis(attention: Tensor, term: ContentBias, pairs: TokenPairs) -> Tensor:
    """The transpose of `looked_up_by_axis`: as `scatter_by_bucket`, of whole grids, without scattering."""
    before_q, before_k, grid = pairs.before_q, pairs.before_k, pairs.keys.grid
    to_rows, to_cols = _one_hot(term.buckets, grid, attention)
    x = attention[:, :, before_q:, before_k:].unflatten(2, grid).unflatten(-1, grid)
    x = torch.einsum("bhyxrj,xjc->bhyxrc", torch.einsum("bhyxij,yir->bhyxrj", x, to_rows), to_cols)
    x = x.flatten(4).flatten(2, 3)
    if not term.prefix_bucket:
        return F.pad(x, (0, 0, before_q, 0))
    left = attention[:, :, before_q:, :before_k].sum(-1, keepdim=True)
    top = F.pad(attention[:, :, :before_q].sum(-1, keepdim=True), (term.buckets.count, 0))
    return torch.cat((top, torch.cat((x, left), dim=-1)), dim=-2)


def _one_hot(buckets: RelativeBuckets, grid: Grid, like: Tensor) -> list[Tensor]:
    """For rows and for columns, 1 where a bucket is that of one that asks and one that is asked: [side, side, buckets
    of the axis]."""
    assert buckets.sides is not None
    made = []
    for axis, (side, count) in enumerate(zip(grid.planar("buckets"), buckets.sides, strict=True)):
        place = torch.arange(side, device=like.device)
        index = buckets.along(axis, place.unsqueeze(1) - place.unsqueeze(0))
        made.append((index.unsqueeze(-1) == torch.arange(count, device=like.device)).to(like.dtype))
    return made


def with_output(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, pattern: Pattern, pairs: TokenPairs) -> Tensor:
    """Attention as products, its softmax in float32 at least, and what terms of the attention weights add to it."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    attention = at_least_float32(scores).softmax(dim=-1).to(v.dtype)
    out, added = attention @ v, content_of_output(pattern, attention, pairs)
    return out if added is None else out + added.to(out.dtype)
