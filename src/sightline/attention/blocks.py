"""Tokens in blocks of 128 slots, and which pairs of blocks may meet: what block-sparse kernels are told beforehand.

Everything is read from the bounding boxes of the blocks; nothing is ever made for each pair of tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.pattern import Directed, View
from sightline.layout import TokenLayout

# Slots of a block: the size that FlexAttention's kernels are made for, and that of a tile of 8 x 16 cells.
BLOCK = 128


class Sight(NamedTuple):
    """The fields of view of some terms as integers: a key is seen where all terms see it.

    Attributes:
        normals: int32 [terms, heads, 2, 2], two half-planes (a, b) of each view; (0, 0) sees everything.
        either: int32 [terms, heads], 1 where one of the two half-planes is enough.
    """

    normals: Tensor
    either: Tensor


class Places(NamedTuple):
    """Where each slot stands.

    Attributes:
        y, x: int32 [1 or rows, slots] in cells, 0 at prefix slots.
        image: int32 [slots], the number of the image in its row.
        prefix: int32 [slots], 1 at prefix slots.
    """

    y: Tensor
    x: Tensor
    image: Tensor
    prefix: Tensor


class Meetings(NamedTuple):
    """What is known of each pair of blocks of queries and of keys: bool [1 or rows, heads, blocks, blocks].

    Attributes:
        partly: some pair of slots may meet, and some pair may not.
        fully: every pair of slots meets.
    """

    partly: Tensor
    fully: Tensor


# Times 4096 cells, twice, it is still an int32.
_LARGEST_NORMAL = 2**18


def simple_views(terms: Sequence[Directed]) -> bool:
    """Whether `Sight` can hold all views: at most two half-planes each, of normals that do not overflow."""
    planes = [view.planes for term in terms for view in term.views]
    small = all(abs(side) <= _LARGEST_NORMAL for two in planes for plane in two for side in plane)
    return small and all(len(two) <= 2 for two in planes)


@functools.lru_cache(maxsize=64)
def sight(terms: tuple[tuple[View, ...], ...], heads: int, device: torch.device) -> Sight:
    """The views of the terms that mask, one tuple a term, as integers; no term sees everything."""
    planes, either = [], []
    for views in terms or ((View(),) * heads,):
        # One half-plane stands for two that are the same; none is 0 >= 0.
        planes.append([(view.planes + view.planes + ((0, 0), (0, 0)))[:2] for view in views])
        either.append([view.join == "any" and len(view.planes) == 2 for view in views])
    with torch.inference_mode(False):
        return Sight(
            torch.tensor(planes, dtype=torch.int32, device=device),
            torch.tensor(either, dtype=torch.int32, device=device),
        )


def places(layout: TokenLayout) -> Places:
    """Where the slots of a layout stand, as int32."""
    coords = layout.coords.int()
    return Places(coords[..., 0], coords[..., 1], layout.image_ids[0].int(), layout.is_prefix.int())


def meetings(where: Places, view: Sight, least_penalty: Tensor | None = None, bound: float = 0.0) -> Meetings:
    """Which blocks of queries and keys meet, decided from their bounding boxes: never too little.

    Args:
        where: of queries and keys alike.
        view: what each head sees.
        least_penalty: float [1 or rows, heads, blocks, blocks], as the function of this name, to prune by.
        bound: a pair of blocks of patches whose least penalty is greater does not meet; each block meets itself.
    """
    box = _boxes(where)
    low_y, high_y = box.displacement(box.low_y, box.high_y)
    low_x, high_x = box.displacement(box.low_x, box.high_x)
    a, b = (view.normals[..., axis, None, None, None] for axis in (0, 1))
    greatest = torch.maximum(a * low_y, a * high_y) + torch.maximum(b * low_x, b * high_x)
    smallest = torch.minimum(a * low_y, a * high_y) + torch.minimum(b * low_x, b * high_x)
    seen, seen_whole = (_joined(planes >= 0, view.either) for planes in (greatest, smallest))
    seen = seen & _along_axes(view, (high_y, -low_y, high_x, -low_x))

    patches = _overlap(box.patch_images, box.patch_images) & seen
    if least_penalty is not None:
        patches = patches & ~(least_penalty > bound)
    images = box.images
    free = _overlap(box.prefix_images, images) | _overlap(images, box.prefix_images)
    itself = torch.eye(box.single.shape[-1], dtype=torch.bool, device=box.single.device)
    meet = patches | free | itself
    same = (images[0].unsqueeze(-1) == images[0].unsqueeze(-2)) & box.single.unsqueeze(-1) & box.single.unsqueeze(-2)
    no_patches = ~(box.has_patch.unsqueeze(-1) & box.has_patch.unsqueeze(-2))
    fully = meet & same & (seen_whole | no_patches)
    return Meetings(meet & ~fully, fully)


def least_penalty(where: Places, terms: Sequence[Directed], by_key: Tensor | None) -> Tensor:
    """A lower bound of the penalty of each pair of blocks of patches: float32 [1 or rows, heads, blocks, blocks].

    Args:
        by_key: the terms' bias by key at each slot, float32 [heads, 1 or rows, slots], or None.
    """
    box = _boxes(where)
    near_y = _gap(*box.displacement(box.low_y, box.high_y)).double()
    near_x = _gap(*box.displacement(box.low_x, box.high_x)).double()
    distance = (near_y.square() + near_x.square()).sqrt()
    total = distance.new_zeros(())
    for term in terms:
        # Where nothing stands outside the view, there may be a pair without a penalty; a central head has it by key.
        slopes = [
            0.0 if central or (view.planes and term.outside == "zero") else term.scale * slope
            for view, slope, central in zip(term.views, term.slopes, term.from_centre, strict=True)
        ]
        penalty = {"linear": distance, "sqrt": distance**0.5, "square": distance**2}[term.distance]
        total = total + torch.tensor(slopes, dtype=torch.float64, device=distance.device).view(-1, 1, 1, 1) * penalty
    if by_key is not None:
        of_key = (-by_key).masked_fill(where.prefix > 0, torch.inf)
        total = total + _blocks(of_key, torch.inf).amin(-1).nan_to_num(posinf=0.0).unsqueeze(-2)
    return total.transpose(0, 1).float()


class _Boxes(NamedTuple):
    """Of the patches of each block the bounding box, int32 [1 or rows, blocks], 0 where there are none; and of all
    its slots which images they belong to, (first, last) int32 [blocks] each."""

    low_y: Tensor
    high_y: Tensor
    low_x: Tensor
    high_x: Tensor
    has_patch: Tensor
    patch_images: tuple[Tensor, Tensor]
    prefix_images: tuple[Tensor, Tensor]
    images: tuple[Tensor, Tensor]
    single: Tensor

    def displacement(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range of key - query over all pairs of two blocks: [1 or rows, query blocks, key blocks] each."""
        return low.unsqueeze(-2) - high.unsqueeze(-1), high.unsqueeze(-2) - low.unsqueeze(-1)


# Beyond any coordinate and any number of images, and not near the end of int32.
_FAR = 1 << 24


def _boxes(where: Places) -> _Boxes:
    patch, every = where.prefix == 0, torch.ones_like(where.prefix, dtype=torch.bool)
    has_patch = _blocks(patch, False).any(-1)
    low_y, high_y = (bound.masked_fill(~has_patch, 0) for bound in _range(where.y, patch))
    low_x, high_x = (bound.masked_fill(~has_patch, 0) for bound in _range(where.x, patch))
    images = _range(where.image, every)
    # A block with padding is never whole: kernels mask the slots past the end.
    whole = _blocks(every, False).all(-1)
    return _Boxes(
        low_y,
        high_y,
        low_x,
        high_x,
        has_patch,
        _range(where.image, patch),
        _range(where.image, ~patch),
        images,
        whole & (images[0] == images[1]),
    )


def _range(values: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The least and greatest of the chosen values of each block; an empty range has its ends the wrong way round."""
    low = _blocks(values.masked_fill(~chosen, _FAR), _FAR).amin(-1)
    high = _blocks(values.masked_fill(~chosen, -_FAR), -_FAR).amax(-1)
    return low, high


def _blocks(values: Tensor, fill: float) -> Tensor:
    """[..., slots] -> [..., blocks, BLOCK], with `fill` past the end."""
    return F.pad(values, (0, -values.shape[-1] % BLOCK), value=fill).unflatten(-1, (-1, BLOCK))


def _overlap(queries: tuple[Tensor, Tensor], keys: tuple[Tensor, Tensor]) -> Tensor:
    """Whether two blocks' ranges of images have one in common: bool [blocks, blocks]."""
    return (queries[0].unsqueeze(-1) <= keys[1].unsqueeze(-2)) & (keys[0].unsqueeze(-2) <= queries[1].unsqueeze(-1))


def _joined(planes: Tensor, either: Tensor) -> Tensor:
    """[terms, heads, 2, 1 or rows, n, n] -> [1 or rows, heads, n, n]: what all terms see."""
    either = either[..., None, None, None] > 0
    return torch.where(either, planes.any(2), planes.all(2)).all(0).transpose(0, 1)


def _along_axes(view: Sight, greatest: Sequence[Tensor]) -> Tensor:
    """Whether the box of displacements reaches the side of each axis that the whole cone of two half-planes lies on.

    A box and a cone that do not meet are separated along a side of one of them: with the half-planes themselves, this
    decides it. `greatest` are those of +y, -y, +x, -x in the box; bool [1 or rows, heads, n, n].
    """
    (a1, b1), (a2, b2) = (plane.unbind(-1) for plane in view.normals.long().unbind(-2))
    turn = a1 * b2 - a2 * b1
    total = None
    for (y, x), most in zip(((1, 0), (-1, 0), (0, 1), (0, -1)), greatest, strict=True):
        # The axis is a sum of the normals, each times something that is not negative.
        inside = ((y * b2 - x * a2) * turn >= 0) & ((a1 * x - b1 * y) * turn >= 0)
        bounded = inside & (turn != 0) & (view.either == 0)
        one = (~bounded[..., None, None, None] | (most >= 0)).all(0)
        total = one if total is None else total & one
    assert total is not None
    return total.transpose(0, 1)


def _gap(low: Tensor, high: Tensor) -> Tensor:
    """The least absolute value in a range."""
    return torch.maximum(low, -high).clamp_min(0)
