"""FlexAttention on a GPU: only blocks of 128 x 128 pairs that can meet are computed, and the bias of a pair is
computed from where its two tokens stand."""

from __future__ import annotations

import functools
import inspect
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from sightline.attention.block_mask import BLOCK, block_pairs
from sightline.attention.pattern import DirectedBias, Distance, Pattern
from sightline.attention.spreading import covering
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

# Fewest slots of a pack: below, `sdpa` takes its images in runs of those that are alike.
MIN_SLOTS = 1024
DTYPES = (torch.bfloat16, torch.float16)
"""Not float32, in which a penalty without the rounding of `official` would be another number."""
# triton's matrix product takes no fewer.
MIN_HEAD_DIM = 16
TILE = Grid(8, 16)
"""The order of tokens that this back end wants, as `Segment.tile`."""
# Kernels that one process may compile: head sizes, dtypes, kinds of pattern, with and without gradients.
RECOMPILE_LIMIT = 64
# Up to 64 numbers a head. With torch's own sizes the scores of a block do not fit into the registers of its warps
# (docs/explanation/decisions/flex.md).
KERNEL_OPTIONS = {"BACKEND": "TRITON", "fwd_BLOCK_M": 64, "fwd_BLOCK_N": 128, "fwd_num_warps": 4, "fwd_num_stages": 2}
# Beyond any sum of a normal and a place (`supports_pattern`), and twice it is below the end of int32.
_FAR = 2**29

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
        start: int32 [rows], where each row's slots start in `y`, `x` and `patch`.
        image: int32 [slots], the number of the image in its row.
        y, x: int32 [slots or rows * slots], the cells; 0 of prefix slots.
        patch: float32 [slots or rows * slots], 1 of patches and 0 of prefix slots.
        steps: float32 [2], how far a cell is along each axis.
        slopes: float32 [heads], the penalty of a distance of 1.
        planes: int32 [heads, planes, 2], the normals of each head's view; (0, 0) for everything.
        any_plane: bool [heads], heads that see what is in any of their planes; None where there are none such.
    """

    start: Tensor
    image: Tensor
    y: Tensor
    x: Tensor
    patch: Tensor
    steps: Tensor
    slopes: Tensor
    planes: Tensor
    any_plane: Tensor | None

    def visible(self, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """FlexAttention's mask_mod: whether slots `query` and `key` are of one image, and the head looks there."""
        same = self.image[query] == self.image[key]
        i, j = self.start[row] + query, self.start[row] + key
        # A prefix slot is beyond all planes, as a query and as a key.
        far = [(_FAR * (1 - self.patch[slot])).int() for slot in (i, j)]
        seen = []
        for number in range(self.planes.shape[1]):
            a, b = self.planes[head, number, 0], self.planes[head, number, 1]
            at_query, at_key = (a * self.y[slot] + b * self.x[slot] for slot in (i, j))
            seen.append(at_key + far[1] >= at_query - far[0])
        if not seen:
            return same
        every, some = functools.reduce(torch.logical_and, seen), functools.reduce(torch.logical_or, seen)
        return same & (every if self.any_plane is None else every | (self.any_plane[head] & some))

    def biased(
        self, score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor, distance: Distance = "linear"
    ) -> Tensor:
        """FlexAttention's score_mod: the score of two slots that see each other, less the penalty of their distance."""
        i, j = self.start[row] + query, self.start[row] + key
        dy = self.steps[0] * self.y[j] - self.steps[0] * self.y[i]
        dx = self.steps[1] * self.x[j] - self.steps[1] * self.x[i]
        # Never 0, of which the inverse root is infinite. (A float of the module would be an input of the program.)
        penalty = dy * dy + 1e-30 + dx * dx
        # A root is many instructions, the inverse of one is one.
        for _ in range({"square": 0, "linear": 1, "sqrt": 2}[distance]):
            penalty = penalty * torch.rsqrt(penalty)
        return score - penalty * (self.slopes[head] * self.patch[i]) * self.patch[j]


class FlexCall(NamedTuple):
    """Attention over the blocks that meet; see `plan_flex`."""

    tensors: FlexTensors
    blocks: Blocks
    distance: Distance = "linear"

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[rows, heads, slots, head_dim] each and the result."""
        # Under autocast a norm may have left q and k in float32 beside v.
        q, k = q.to(v.dtype), k.to(v.dtype)
        if torch.compiler.is_compiling():
            return flex_forward(q, k, v, *self)
        if q.device.type == "cpu":
            return flex_forward(q.detach(), k.detach(), v.detach(), *self)
        return compiled()(*map(_free_of_others, (q, k, v)), *self)


def flex_forward(
    q: Tensor, k: Tensor, v: Tensor, captured: FlexTensors, blocks: Blocks, distance: Distance = "linear"
) -> Tensor:
    """FlexAttention over the blocks that meet: [rows, heads, slots, head_dim] each."""

    # Functions of their own, not methods: torch looks at the code of what it inlines into the kernel.
    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return captured.visible(row, head, query, key)

    def biased(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return captured.biased(score, row, head, query, key, distance)

    # Made here, from tensors that are arguments: lengths that are attributes would be guarded one by one.
    block_mask = BlockMask((q.shape[2], k.shape[2]), *blocks, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=visible)
    options: Any = KERNEL_OPTIONS if q.shape[-1] <= 64 else {"BACKEND": "TRITON"}
    out = flex_attention(q, k, v, biased, block_mask, kernel_options=options)
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


def supports_pattern(pattern: Pattern, layout: TokenLayout) -> bool:
    """Whether a pattern is one term of views that mask and distances between tokens, of which the kernel is made."""
    if len(pattern.terms) != 1 or type(term := pattern.terms[0]) is not DirectedBias:
        return False
    normals = [normal for view in term.views for normal in (*view.planes, *view.within)]
    furthest = max((sum(one.grid) for one in layout.segments), default=0)
    small = all(len(normal) == 2 and max(map(abs, normal)) * furthest < _FAR for normal in normals)
    masked = term.outside == "inf" or not normals
    return masked and small and not any(view.within for view in term.views) and not any(term.from_centre)


def plan_flex(pattern: Pattern, layout: TokenLayout) -> FlexCall:
    """What the kernel captures and which blocks it visits; made once for all layers of a model on one layout.

    Slopes are captured apart from the blocks, unless blocks are pruned by them. Padding is an image of its own. Prefix
    tokens are slots as any other (not measured against keeping them apart): standing first, they move the end of each
    tile into the next block. LH-90 at 64 x 64 visits .604 of the pairs of blocks without one, .732 with one.
    """
    (term,) = pattern.terms
    assert isinstance(term, DirectedBias)
    bound = pattern.prune_below
    # What blocks are found by: the views, and the penalties where there is a bound.
    sight = Pattern((replace(term, scale=0.0) if bound is None else term,), bound)
    cover = covering(segment.grid for segment in layout.segments)
    with torch.inference_mode(False):
        captured = _remember(layout, ("slots", layout.rows), lambda: _capture(layout))
        blocks = _remember(layout, ("blocks", sight.terms, bound), lambda: _find_blocks(layout, sight, cover))
        heads = _capture_heads(term, layout.device)
    return FlexCall(FlexTensors(*captured, *heads), blocks, term.distance)


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
def _capture_heads(term: DirectedBias, device: torch.device) -> tuple[Tensor | None, ...]:
    """`steps`, `slopes`, `planes` and `any_plane` of `FlexTensors`."""
    slopes = [term.scale * slope for slope in term.slopes]
    most = max(len(view.planes) for view in term.views)
    # One plane twice is one plane, whether all or any count.
    planes = [(view.planes or ((0, 0),)) + (view.planes or ((0, 0),))[:1] * most for view in term.views]
    some = [view.join == "any" and len(view.planes) > 1 for view in term.views]
    normals = torch.tensor([one[:most] for one in planes], dtype=torch.int32, device=device)
    return (
        _fixed(torch.tensor(term.steps or (1.0, 1.0), dtype=torch.float32, device=device), 0),
        _fixed(torch.tensor(slopes, dtype=torch.float32, device=device), 0),
        _fixed(normals.reshape(len(planes), most, 2).clone(), 0, 1, 2),
        _fixed(torch.tensor(some, device=device), 0) if any(some) else None,
    )


def _capture(layout: TokenLayout) -> tuple[Tensor, ...]:
    """`start`, `image`, `y`, `x` and `patch` of `FlexTensors`."""
    y, x = layout.coords.int().masked_fill(layout.is_prefix.unsqueeze(-1), 0).unbind(-1)
    rows = torch.arange(layout.rows, device=layout.device, dtype=torch.int32)
    start = rows * (layout.slots if len(y) > 1 else 0)
    torch._dynamo.maybe_mark_dynamic(start, 0)
    # Flat, and no views of other tensors, whose shapes would be looked at too.
    patch = (~layout.is_prefix).float().expand(y.shape)
    return start, *(one.flatten().clone() for one in (layout.image_ids[0].int(), y, x, patch))


def _find_blocks(layout: TokenLayout, sight: Pattern, cover: Grid) -> Blocks:
    partly, fully = block_pairs(layout, sight.visible(sight.tables(cover, layout.device)[0]))
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
