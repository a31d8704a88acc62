"""By which numbers a run chooses its attention: measured where it began, and the same wherever it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from sightline.analysis.long_work import costs_for
from sightline.attention.costs import Costs
from sightline.grid import Grid
from sightline.load import read_record
from sightline.models import ViTConfig
from sightline.ranks import Ranks
from sightline.training.config import TrainConfig


def run_costs(
    config: TrainConfig,
    model: ViTConfig,
    last: Path | None,
    device: torch.device,
    ranks: Ranks,
    warn: Callable[[str], None],
) -> Costs | None:
    """The numbers that choose in a run; None on a GPU. Every rank has to ask.

    Args:
        config: resolved; model: of it.
        last: the checkpoint that it goes on from, whose numbers these are where it was made with the same kind of
            processor and torch.
        warn: called with a line where it was made with others.
    """
    if device.type != "cpu":
        return None
    before = read_record(last)["training"].get("attention") if last is not None else None
    if before is not None:
        costs = Costs.of_record(before, f"{last}/config.json: training.attention")
        if costs.is_of_here:
            return costs
        warn(f"{last} was trained on another kind of processor or by another torch: not the same to the bit")
    side = config.resolution or max(Grid.checked(model.image_size))
    shown = [(config.images or 0, Grid.checked(side))]
    found = costs_for(model, shown, precision=config.precision, training=True, device=device, ranks=ranks)
    return found.of_width(model.attention_width // model.heads)
