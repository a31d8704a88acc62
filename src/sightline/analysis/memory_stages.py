"""What a pass of a trunk of stages takes in memory, counted stage by stage as the plain trunk is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from sightline.errors import InputError
from sightline.models import ViTConfig, make_model
from sightline.models.stage import StageSpec
from sightline.tokens.grid import Grid

if TYPE_CHECKING:
    from sightline.analysis.memory import PlainPass

_FLOAT = 4


class UncountableError(InputError):
    """A model beyond torch's own numbers, or an encoding of somebody else's that needs real tensors."""


def plain_stage(stage: StageSpec) -> ViTConfig:
    """The plain trunk of a stage's width and depth, whose patches are as large as merged ones."""
    fields: dict[str, Any] = {
        "architecture": "vit", "architecture_options": {}, "num_classes": 0, "class_names": None, "table_grid": None,
        "fit": "pad",
    }  # fmt: skip
    return stage.config.replace(**fields, patch_size=stage.config.patch_size * 2**stage.merged)


def parameters_of(config: ViTConfig) -> int:
    """How many numbers the model learns.

    Raises:
        UncountableError: torch cannot count them.
    """
    try:
        with torch.device("meta"):
            return sum(one.numel() for one in make_model(config).parameters())
    # What torch raises for a size beyond its own whole numbers.
    except (RuntimeError, OverflowError, TypeError):
        said = f"model with encoding {config.encoding}: its parameters cannot be counted"
        raise UncountableError(said) from None


def kept_of_stages(
    config: ViTConfig, stages: Sequence[tuple[StageSpec, PlainPass]], size: Grid
) -> tuple[int, int, int, int]:
    """Bytes of a pass at a size in pixels.

    Returns:
        What all layers keep for the backward pass, what is there for a moment, the attention of one layer, and what
        biases kept for all layers would take.
    """
    embedded = config.grid_of((size.rows, size.cols))
    kept, moment, attention, stored = 0, 0, 0, 0
    for stage, one in stages:
        tokens, window = stage.tokens(embedded.cells, embedded), stage.keys(embedded.cells, embedded)
        heads, depth = one.config.heads, one.config.depth
        pairs = one.batch * heads * tokens * window
        kept += one.kept(tokens - one.config.num_prefix_tokens, tokens, window, tiled=False)
        if one.bias == "learned":
            # Scores and their softmax, since no fused kernel gives a bias its gradient.
            kept += 2 * depth * pairs * one.element
            attention = max(attention, (3 * pairs if one.training else heads * window**2) * one.element)
        elif one.bias == "directed":
            attention = max(attention, 2 * heads * window**2 * one.element)
        elif one.bias == "content":
            attention = max(attention, one.workspace(tokens, window, tiled=False))
        if one.bias != "none":
            stored += depth * heads * window**2 * _FLOAT
        # Laid into windows, and put back.
        moment = max(moment, one.moment(one.batch * tokens) + 2 * one.batch * tokens * one.config.dim * _FLOAT)
    return kept, moment, attention, stored
