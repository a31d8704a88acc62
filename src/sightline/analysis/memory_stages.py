"""What a pass of a trunk of stages takes in memory, counted stage by stage as the plain trunk is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sightline.errors import InputError
from sightline.grid import Grid
from sightline.models import ViTConfig, make_model
from sightline.models.architectures.swin import SwinOptions, stage_config, trained_grid
from sightline.models.merging import merged_grid

if TYPE_CHECKING:
    from sightline.analysis.memory import PlainPass

_FLOAT = 4


def plain_stages(config: ViTConfig) -> list[ViTConfig]:
    """Of each stage the plain trunk of its width and depth, whose patches are as large as merged ones."""
    options = SwinOptions.of(config)
    fields: dict[str, Any] = {
        "architecture": "vit", "architecture_options": {}, "num_classes": 0, "class_names": None, "table_grid": None,
        "fit": "pad",
    }  # fmt: skip
    return [
        stage_config(config, stage).replace(**fields, depth=depth, patch_size=config.patch_size * 2**stage)
        for stage, depth in enumerate(options.depths)
    ]


def parameters_of(config: ViTConfig) -> int:
    """How many numbers the model learns.

    Raises:
        InputError: torch cannot count them.
    """
    try:
        with torch.device("meta"):
            return sum(one.numel() for one in make_model(config).parameters())
    # What torch raises for a size beyond its own whole numbers.
    except (RuntimeError, OverflowError, TypeError):
        said = f"model with encoding {config.encoding}: its parameters cannot be counted"
        raise InputError(said) from None


def kept_of_stages(config: ViTConfig, stages: list[PlainPass], size: Grid) -> tuple[int, int, int, int]:
    """Bytes of a pass at a size in pixels.

    Returns:
        What all layers keep for the backward pass, what is there for a moment, the attention of one layer, and what
        biases kept for all layers would take.
    """
    options, embedded = SwinOptions.of(config), config.grid_of((size.rows, size.cols))

    kept, moment, attention, stored = 0, 0, 0, 0
    for stage, one in enumerate(stages):
        grid = merged_grid(embedded, stage)
        window = options.cut(grid, trained_grid(config, options, stage), shifted=False).size.cells
        tokens, heads, depth = grid.cells, one.config.heads, options.depths[stage]
        pairs = one.batch * heads * tokens * window
        kept += one.kept(grid.cells, tokens, window, tiled=False)
        if one.bias == "learned":
            # Scores and their softmax, since no fused kernel gives a bias its gradient.
            kept += 2 * depth * pairs * one.element
            attention = max(attention, (3 * pairs if one.training else heads * window**2) * one.element)
        elif one.bias == "directed":
            attention = max(attention, 2 * heads * window**2 * one.element)
        if one.bias != "none":
            stored += depth * heads * window**2 * _FLOAT
        # Laid into windows, and put back.
        moment = max(moment, one.batch * tokens * (one.moment_bytes() + 2 * one.config.dim * _FLOAT))
    return kept, moment, attention, stored
