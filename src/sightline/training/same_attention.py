"""By which numbers a run chooses its attention: measured where it began, and the same wherever it goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sightline import runtime
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
    # The first says it to all, which may be on other processors.
    before = None
    with ranks.agreeing():
        if ranks.first and last is not None:
            before = _usable(last, warn)
    before = ranks.told(before)
    if before is not None:
        return Costs.of_record(before, f"{last}/config.json: training.attention")
    side = config.resolution or max(Grid.checked(model.image_size))
    shown = [(config.images or 0, Grid.checked(side))]
    found = costs_for(model, shown, precision=config.precision, training=True, device=device, ranks=ranks)
    # What ships may have been measured with another torch; what the run goes on with is this one.
    here = {"processor": runtime.processor(), "torch": torch.__version__}
    return dataclasses.replace(found.of_width(model.attention_width // model.heads), **here)


def _usable(last: Path, warn: Callable[[str], None]) -> Any:
    """The numbers of a checkpoint as they are recorded, where there are any of this processor and torch."""
    before = read_record(last)["training"].get("attention")
    if before is None or Costs.of_record(before, f"{last}/config.json: training.attention").is_of_here:
        return before
    warn(f"{last} was trained on another kind of processor or by another torch: not the same to the bit")
    return None
