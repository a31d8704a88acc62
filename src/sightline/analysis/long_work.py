"""Which forms of attention a long work on a CPU takes: measured first, where nothing is known of the processor."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from sightline.attention.calibrate import for_long_work
from sightline.attention.costs import Costs, Group
from sightline.grid import Grid
from sightline.models import ViTConfig
from sightline.ranks import ALONE, Ranks


def costs_for(
    config: ViTConfig,
    shown: Iterable[tuple[int, Grid]],
    *,
    precision: str,
    training: bool = False,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> Costs:
    """The numbers by which each process of a work chooses (`attention/costs.py`); all of them have to ask.

    Args:
        shown: numbers of images, and their sizes in pixels.
        precision: `float32` or `bfloat16`, of the matrix products.
        training: the images are trained on, and measured too.
    """
    dtype, head_dim = getattr(torch, precision), config.attention_width // config.heads
    cells = sum(images * config.grid_of((size.rows, size.cols)).cells ** 2 for images, size in shown)
    pairs = cells * config.heads * config.depth * (1 + 2 * training)
    kinds = (False, True) if training else (False,)
    groups = [Group.of(dtype, training=one, head_dim=head_dim) for one in kinds]
    return for_long_work(groups, pairs if device.type == "cpu" else 0, ranks)
