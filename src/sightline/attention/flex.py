"""FlexAttention on a GPU: only blocks of 128 x 128 pairs that can meet are computed, and the bias of a pair is read
from a small table by its displacement."""

from __future__ import annotations

import functools
import inspect
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from sightline.attention.block_mask import BLOCK, block_pairs
from sightline.attention.pattern import BFLOAT16_MAX, DirectedBias, FieldOfView, Pattern
from sightline.attention.spreading import covering
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

# Fewest slots of a row at which blocks beat a dense bias: 1.4 to 1.9 times at 1,025 on an H100, .8 to 1.4 at 577.
MIN_SLOTS = 1024
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# triton's matrix product takes no fewer.
MIN_HEAD_DIM = 16
TILE = Grid(8, 16)
"""The order of tokens that this back end wants, as `Segment.tile`."""
# Kernels that one process may compile: head sizes, dtypes, kinds of pattern, with and without gradients.
RECOMPILE_LIMIT = 64
# A prefix slot's place in the tables: below all others, so that any sum with it reads entry 0, which is 0.
_NOWHERE = -(1 << 29)

# (number, indices) of the partial and the full blocks of keys of each block of queries, then of queries of keys.
Blocks = tuple[Tensor, ...]


@functools.cache
def has_triton() -> bool:
    """Whether this machine has the compiler that FlexAttention needs; where it has none, a warning says so once."""
    try:
        from torch.utils._triton import has_triton as found
    except ImportError:
        return False
    if not found():
        warnings.warn("attention: no triton here, so FlexAttention is not used and `sdpa` computes", stacklevel=2)
        return False
    return True


class FlexTensors(NamedTuple):
    """What the mask and the scores are computed from; slots of all rows stand one after the other where rows differ.

    Attributes:
        start: int32 [rows], where each row's slots start in `from_query`, `to_key`, `by_key`.
        image: int32 [slots], the number of the image in its row.
        from_query, to_key: int32 [slots or rows * slots]; their sum at a query and a key is the place of the
            displacement in `table`, or below 0 for prefix slots.
        table: float32 [heads, entries], the bias by displacement, -inf where it masks; entry 0 is 0.
        by_key: float32 [heads, slots or rows * slots], the bias by key, or None.
    """

    start: Tensor
    image: Tensor
    from_query: Tensor
    to_key: Tensor
    table: Tensor
    by_key: Tensor | None

    def visible(self, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """FlexAttention's mask_mod: whether slots `query` and `key` are of one image; what a head sees is biased."""
        return self.image[query] == self.image[key]

    def biased(self, score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """FlexAttention's score_mod: the score of two slots of one image, plus its bias."""
        j = self.start[row] + key
        place = torch.clamp(self.from_query[self.start[row] + query] + self.to_key[j], min=0)
        bias = self.table[head, place]
        if self.by_key is not None:
            bias = bias + torch.where(place > 0, self.by_key[head, j], 0.0)
        return score + bias


class FlexCall(NamedTuple):
    """Attention over the blocks that meet; see `plan_flex`."""

    tensors: FlexTensors
    blocks: Blocks

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[rows, heads, slots, head_dim] each and the result."""
        # Under autocast a norm may have left q and k in float32 beside v.
        q, k = q.to(v.dtype), k.to(v.dtype)
        if torch.compiler.is_compiling():
            return flex_forward(q, k, v, *self)
        if q.device.type == "cpu":
            return flex_forward(q.detach(), k.detach(), v.detach(), *self)
        return compiled()(*map(_free_of_others, (q, k, v)), *self)


def flex_forward(q: Tensor, k: Tensor, v: Tensor, captured: FlexTensors, blocks: Blocks) -> Tensor:
    """FlexAttention over the blocks that meet: [rows, heads, slots, head_dim] each."""

    # Functions of their own, not methods: torch looks at the code of what it inlines into the kernel.
    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return captured.visible(row, head, query, key)

    def biased(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return captured.biased(score, row, head, query, key)

    # Made here, from tensors that are arguments: lengths that are attributes would be guarded one by one.
    block_mask = BlockMask((q.shape[2], k.shape[2]), *blocks, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=visible)
    out = flex_attention(q, k, v, biased, block_mask, kernel_options={"BACKEND": "TRITON"})
    assert isinstance(out, Tensor)
    return out


@functools.cache
def compiled(backend: Any = "inductor") -> Any:
    """`flex_forward`, compiled once for all layers, slopes, layouts and sizes.

    A new number of heads, head_dim, dtype or kind of pattern compiles again, and so does each of: one row or several,
    one block or several, rows alike or dropped, with or without gradients. A new resolution does not.
    """
    # Models and precisions share this one function, so torch's limit of 8 is too small for it.
    limit: Any = {}
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        limit = {"recompile_limit": RECOMPILE_LIMIT}
    else:  # torch before 2.13 has one limit for all functions
        config: Any = torch._dynamo.config
        config.recompile_limit = max(RECOMPILE_LIMIT, config.recompile_limit)
    return torch.compile(flex_forward, backend=backend, dynamic=True, fullgraph=True, **limit)


def _free_of_others(x: Tensor) -> Tensor:
    """Mark q, k or v: heads and head_dim compile again; rows are equal to no other size, also where they look so."""
    torch._dynamo.maybe_mark_dynamic(_fixed(x, 1, 3), 0)
    if x._base is not None:
        # Usually a view of all three side by side, whose sizes torch looks at too.
        torch._dynamo.maybe_mark_dynamic(x._base, list(range(x._base.dim())))
    return x


def _fixed(x: Tensor, *dims: int) -> Tensor:
    """Mark sizes that are the model's, as heads."""
    torch._dynamo.mark_static(x, list(dims))
    return x


def plan_flex(pattern: Pattern, layout: TokenLayout) -> FlexCall:
    """What the kernel captures and which blocks it visits; made once for all layers of a model on one layout.

    Slopes are part of the tables alone, which are kept apart, unless blocks are pruned by them. Padding is an image of
    its own. Prefix tokens are slots as any other (not measured against keeping them apart): standing first, they move
    the end of each tile into the next block. LH-90 at 64 x 64 visits .604 of the pairs of blocks without one, .732
    with one.
    """
    terms = tuple(term for term in pattern.terms if isinstance(term, DirectedBias))
    grids, bound = [segment.grid for segment in layout.segments], pattern.prune_below
    cover = covering(grids)
    # What blocks are found by: the views, and the penalties where there is a bound. The greatest penalty of an image's
    # own grid is no less than that of any distance in it, so all is seen where it stands outside.
    sight = tuple(
        replace(
            term,
            views=(FieldOfView(),) * len(term.views) if term.outside == "max" else term.views,
            scale=0.0 if bound is None else term.scale,
        )
        for term in terms
    )
    # One table serves all images, unless what stands outside a view depends on the grid.
    if all(term.outside != "max" for term in terms):
        grids = [cover] * len(grids)
    with torch.inference_mode(False):
        by_key = _remember(layout, ("by key", terms), lambda: _by_key(pattern, layout))
        captured = _remember(layout, ("slots", tuple(grids), layout.rows), lambda: _capture(layout, grids))
        key = ("blocks", sight, None if bound is None else (bound, terms))
        blocks = _remember(layout, key, lambda: _find_blocks(layout, Pattern(sight, bound), cover, by_key))
        flat = None if by_key is None else _fixed(by_key.flatten(1).clone(), 0)
        table = _table(terms, tuple(dict.fromkeys(grids)), layout.device)
    return FlexCall(captured._replace(table=table, by_key=flat), blocks)


# What was made for layouts of whole images, by what they are made of; for others it lives as long as they do.
_BY_VALUE: dict[Any, Any] = {}
_CACHE_LIMIT = 256


def _remember(layout: TokenLayout, key: Any, make: Any) -> Any:
    if not all(segment.complete for segment in layout.segments):
        return layout.cached(key, make)
    images = tuple(segment.cache_key for segment in layout.segments)
    key = images, layout.num_prefix_tokens, layout.padding, layout.device, key
    # Put last again: the one that was not used for longest goes first.
    _BY_VALUE[key] = value = _BY_VALUE.pop(key) if key in _BY_VALUE else make()
    if len(_BY_VALUE) > _CACHE_LIMIT:
        del _BY_VALUE[next(iter(_BY_VALUE))]
    return value


@functools.lru_cache(maxsize=64)
def _table(terms: tuple[DirectedBias, ...], grids: tuple[Grid, ...], device: torch.device) -> Tensor:
    """A 0 and the tables of some grids, one after the other: float32 [heads, entries]."""
    tables = [Pattern(terms).tables(grid, device)[0].flatten(1) for grid in grids]
    nothing = tables[0].new_zeros(tables[0].shape[0], 1)
    # Slots of two images never meet, but their place is computed: it must be inside.
    spare = [] if len(tables) == 1 else [nothing.expand(-1, max(table.shape[1] for table in tables))]
    seen = [table.masked_fill(table <= -BFLOAT16_MAX, -torch.inf) for table in tables]
    return _fixed(torch.cat([nothing, *seen, *spare], dim=1), 0)


def _capture(layout: TokenLayout, grids: list[Grid]) -> FlexTensors:
    """All but the tables, of which that of each image is by its grid of `grids`."""
    starts, start = {}, 1
    for grid in dict.fromkeys(grids):
        starts[grid] = start
        start += (2 * grid.rows - 1) * (2 * grid.cols - 1)
    widths = torch.tensor([2 * grid.cols - 1 for grid in grids])
    centres = torch.tensor([starts[grid] + (grid.rows - 1) * (2 * grid.cols - 1) + grid.cols - 1 for grid in grids])
    per_slot = torch.stack((widths, centres)).int().repeat_interleave(torch.tensor(layout.seqlens), dim=1)
    width, centre = F.pad(per_slot, (0, layout.padding)).to(layout.device)
    y, x = layout.coords.int().unbind(-1)
    cell = y * width + x
    rows = torch.arange(layout.rows, device=layout.device, dtype=torch.int32)
    start_of_row = rows * (layout.slots if len(y) > 1 else 0)
    torch._dynamo.maybe_mark_dynamic(start_of_row, 0)
    # Flat, and no views of other tensors, whose shapes would be looked at too.
    image, from_query, to_key = (
        one.flatten().clone()
        for one in (
            layout.image_ids[0].int(),
            (centre - cell).masked_fill(layout.is_prefix, _NOWHERE),
            cell.masked_fill(layout.is_prefix, _NOWHERE),
        )
    )
    return FlexTensors(start_of_row, image, from_query, to_key, table=cell, by_key=None)


def _by_key(pattern: Pattern, layout: TokenLayout) -> Tensor | None:
    """The pattern's bias by key at each slot, 0 at prefix slots: float32 [heads, 1 or rows, slots]; None for none."""
    images = []
    for segment in layout.segments:
        _, table = pattern.tables(segment.grid, layout.device)
        if table is None:
            return None
        y, x = segment.coords.unbind(-1)
        # Tokens before heads, as `join` takes them.
        images.append(table[:, y, x].permute(1, 2, 0))
    return layout.join(torch.cat(images, dim=1)).permute(2, 0, 1).contiguous()


def _find_blocks(layout: TokenLayout, sight: Pattern, cover: Grid, by_key: Tensor | None) -> Blocks:
    bound = sight.prune_below
    near = None if by_key is None or bound is None else by_key >= -bound
    partly, fully = block_pairs(layout, sight.visible(sight.tables(cover, layout.device)[0]), near)
    made = BlockMask.from_kv_blocks(*_listed(partly), *_listed(fully), BLOCK_SIZE=BLOCK)
    lists = (
        (made.kv_num_blocks, made.kv_indices, made.full_kv_num_blocks, made.full_kv_indices),
        (made.q_num_blocks, made.q_indices, made.full_q_num_blocks, made.full_q_indices),
    )
    return tuple(_fixed(one, 1) for four in lists for one in four if one is not None)


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """bool [..., blocks, blocks] -> how many of each row are chosen, and which, these first: int32."""
    chosen = chosen.contiguous()
    number = chosen.sum(-1, dtype=torch.int32)
    return number, chosen.int().argsort(dim=-1, descending=True, stable=True).int()
