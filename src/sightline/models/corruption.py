"""Which patches of an image are corrupted before a model says what they show, and what stands in their place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.errors import InputError
from sightline.io.config import PositiveShare, Share, config_dataclass
from sightline.tokens.layout import TokenLayout
from sightline.tokens.rng import uniform

# Of chance, beside those of blocks and queries; and its three draws.
_STREAM = 4
_WHICH, _HOW, _OTHER = range(3)
MASKED = -1
"""Instead of the place of a patch: the [mask]."""


class CorruptionDraw(NamedTuple):
    """The patches of one segment that are corrupted, by their places among the patches that are there: row-major, or as
    they were kept where some were dropped.

    Attributes:
        chosen: int64 [rows, patches], rising.
        sources: int64 [rows, patches], the place of the patch that stands there, `MASKED` where none does; its own
            where it was kept.
    """

    chosen: Tensor
    sources: Tensor


@config_dataclass
class Corruption:
    """How much is corrupted, and how (ViT appendix B.1.2, as BERT's words).

    Attributes:
        share: of an image's patches, rounded up, that are chosen.
        masked, random: the probability with which a chosen one becomes the [mask], or another patch of the same image;
            else it is kept.
    """

    share: PositiveShare = 0.5
    masked: Share = 0.8
    random: Share = 0.1

    def __post_init__(self) -> None:
        # Sums of tenths may be above 1 by their last digit.
        if self.masked + self.random > 1 + 1e-9:
            said = f"masked {self.masked} and random {self.random}: expected at most 1 together"
            raise InputError(said, field="masked", value=self.masked)

    def draw(self, layout: TokenLayout, training: bool) -> list[CorruptionDraw]:
        """What is corrupted of each segment, by the images' seeds and the patches' places in their grids alone. Without
        seeds all images have the same, which never changes; in training they are drawn from torch's generator."""
        device, segments = layout.device, layout.segments
        if not segments:
            return []
        seeds = layout.seeds
        if seeds is None:
            seeds = torch.zeros(layout.images, dtype=torch.int64, device=device)
            if training:
                seeds.random_()
        counts = [segment.patches for segment in segments]
        whole = sum(counts)
        each = torch.tensor(counts, device=device)
        # Of all images of a row at once: a pack has many.
        own = seeds.unflatten(0, (layout.rows, -1)).repeat_interleave(each, dim=1, output_size=whole)
        inside = [torch.arange(one.patches, device=device)[None] if one.complete else one.indices for one in segments]
        numbers = torch.cat([one.expand(layout.rows, -1) for one in inside], dim=1)
        places = torch.cat([torch.arange(count, device=device) for count in counts])
        others = each.repeat_interleave(each, output_size=whole)
        which, how, other = (uniform(own, _STREAM, draw, numbers) for draw in (_WHICH, _HOW, _OTHER))
        # Another one, never itself, unless it is alone.
        step = torch.minimum((other * (others - 1)).long(), others - 2) + 1
        sources = torch.where(how < self.masked + self.random, (places + step) % others, places)
        sources = sources.masked_fill(how < self.masked, MASKED)
        found = []
        for first, mine in zip(which.split(counts, dim=1), sources.split(counts, dim=1), strict=True):
            count = math.ceil(self.share * first.shape[1])
            chosen = first.argsort(dim=1, stable=True)[:, :count].sort(dim=1).values
            found.append(CorruptionDraw(chosen, mine.gather(1, chosen)))
        return found


def apply_corruption(values: Tensor, mask: Tensor, drawn: Sequence[CorruptionDraw], layout: TokenLayout) -> Tensor:
    """Tokens, or flat rows of a layout without prefix tokens, in which what was drawn is replaced; all else stays.

    Args:
        values: [rows, slots, values], in the order of the layout.
        mask: [values], what stands for a patch that is hidden.
    """
    if not layout.segments:
        return values
    rows, slots, device = layout.rows, layout.slots, layout.device
    every = torch.arange(slots, device=device)
    # The slot of each patch in row-major order.
    slot_of = layout.to_row_major(every.unsqueeze(0))[0]
    start, at, taken, hidden = 0, [], [], []
    for one, length in zip(drawn, layout.seqlens, strict=True):
        first = start + layout.num_prefix_tokens
        at.append(one.chosen + first)
        hidden.append(one.sources == MASKED)
        taken.append(torch.where(hidden[-1], one.chosen, one.sources) + first)
        start += length
    place = slot_of[torch.cat(at, dim=1)]
    source = every.repeat(rows, 1).scatter(1, place, slot_of[torch.cat(taken, dim=1)])
    is_hidden = torch.zeros(rows, slots, dtype=torch.bool, device=device).scatter(1, place, torch.cat(hidden, dim=1))
    source = source + slots * torch.arange(rows, device=device).unsqueeze(1)
    moved = values.flatten(0, 1).index_select(0, source.flatten()).unflatten(0, (rows, slots))
    return torch.where(is_hidden.unsqueeze(-1), mask.to(values.dtype), moved)
