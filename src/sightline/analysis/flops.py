"""What a pass computes, counted from shapes: two operations a multiplication with its addition."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable

import torch

from sightline.encodings.create import create_encoding
from sightline.grid import Grid
from sightline.models import ViTConfig
from sightline.models.architectures.swin import SwinOptions, stage_config
from sightline.models.create import architecture_class
from sightline.models.embedder import embedder_class


def forward_flops(config: ViTConfig, patches: Iterable[int]) -> int:
    """Operations of the matrix products of a forward pass over images of these lengths, packed or not.

    Attention is counted whole inside each image, or inside what its architecture cuts it into (rows and columns as
    those of a square), also where a pattern forbids some of it, and not at all between images. Norms, activations,
    softmax and what an encoding computes of places alone are left out; what it multiplies tokens by is counted.

    Args:
        patches: of each image, those that were not dropped; prefix tokens are the model's.
    """
    if config.architecture == "swin":
        return sum(_of_stages(config, count) for count in patches)
    dim, width = config.dim, config.attention_width
    pooled = config.has_probe and config.has_classifier
    mlp = config.mlp_hidden * (3 if config.mlp == "swiglu" else 2)
    # Multiplications of one slot, of one patch and of one image.
    of_slot = config.depth * (dim * (4 * width + mlp) + _of_encoding(config))
    of_patch = embedder_class(config.embedder).multiplications(config)
    of_image = 0
    if config.has_classifier and config.num_classes:
        # What a head of all tokens computes is its own.
        hidden = (config.head_hidden or dim) if config.head == "mlp" else 0
        of_image = dim * (hidden or config.num_classes) + hidden * config.num_classes
    if pooled:
        # The probe's query is the same for all images, and left out; its output goes through a projection and an MLP.
        of_image += dim * config.probe_width + 2 * dim * config.pool_hidden
    total, pairs = 0, architecture_class(config.architecture).pairs
    for count in patches:
        slots = count + config.num_prefix_tokens
        total += of_slot * slots + of_patch * count + of_image + 2 * pairs(config, count) * width
        if pooled:
            seen = slots if config.pool_prefix else count
            total += 2 * seen * (dim + 1) * config.probe_width
    return 2 * total


def _of_encoding(config: ViTConfig, depth: int | None = None, grid: Grid | None = None) -> int:
    """Multiplications of a slot in a layer that the encoding adds, of a stage where its depth and grid are said."""
    options = json.dumps(config.encoding_options, sort_keys=True)
    sizes = depth or config.depth, config.heads, config.dim, config.head_dim, config.num_prefix_tokens
    return _counted(config.encoding, options, sizes, config.train_grid if grid is None else grid)


@functools.lru_cache(maxsize=64)
def _counted(name: str, options: str, sizes: tuple[int, int, int, int | None, int], train_grid: Grid) -> int:
    """The same, made once for all images, on whose grids nothing of it hangs."""
    depth, heads, dim, head_dim, prefix = sizes
    # As deep as the model: options may say something of each layer.
    with torch.device("meta"):
        encoding = create_encoding(
            name,
            depth=depth,
            heads=heads,
            dim=dim,
            head_dim=head_dim,
            train_grid=train_grid,
            num_prefix_tokens=prefix,
            **json.loads(options),
        )
    return encoding.products_of_slot()


def _of_stages(config: ViTConfig, patches: int) -> int:
    """As `forward_flops`, of a square image that whole windows fill (Swin equations 1 and 2, and the merging)."""
    options, total = SwinOptions.of(config), embedder_class(config.embedder).multiplications(config) * patches
    cells = Grid.checked(options.window).cells
    for stage, depth in enumerate(options.depths):
        one, slots = stage_config(config, stage), -(-patches // 4**stage)
        mlp = one.mlp_hidden * (3 if one.mlp == "swiglu" else 2)
        encoding = _of_encoding(one, depth, options.frame(stage, config.train_grid))
        met = 2 * min(cells, slots) * one.attention_width
        total += depth * slots * (one.dim * (4 * one.attention_width + mlp) + met + encoding)
        # Four patches of half the width to one.
        total += 2 * one.dim * one.dim * slots if stage else 0
    one = stage_config(config, len(options.depths) - 1)
    hidden = (config.head_hidden or one.dim) if config.head == "mlp" else 0
    if config.num_classes:
        total += one.dim * (hidden or config.num_classes) + hidden * config.num_classes
    return 2 * total


def training_flops(config: ViTConfig, patches: Iterable[int]) -> int:
    """Operations of a forward and a backward pass, which multiplies by the weights, and by the inputs."""
    return 3 * forward_flops(config, patches)
