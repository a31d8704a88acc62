"""What a pass computes, counted from shapes: two operations a multiplication with its addition."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable

import torch

from sightline.encodings.create import create_encoding
from sightline.io.config import build_config
from sightline.models import ViTConfig
from sightline.models.contrastive import ContrastiveOptions, text_tower_flops
from sightline.models.create import architecture_class
from sightline.models.embedder import embedder_class
from sightline.models.stage import StageSpec
from sightline.tokens.grid import Grid


def forward_flops(config: ViTConfig, patches: Iterable[int | Grid]) -> int:
    """Operations of the matrix products of a forward pass over images of these lengths, packed or not.

    Attention is counted whole inside each image, or inside what its architecture cuts it into, also where a pattern
    forbids some of it, and not at all between images; of a last layer of which class tokens alone are computed
    (`Model.pooled`) all tokens are counted, as papers count them. Norms, activations, softmax and what an encoding
    computes of places alone are left out; what it multiplies tokens by is counted. The resize of a flexible embedder's
    kernel is left out too, since it is a batch's and no image's: one each where it has a gradient, else one for all.
    From 32 px it is 0.3 % of a ViT-B's forward of one image at 224 px in patches of 16, and 13 % at 240 px in patches
    of 48, the largest of FlexiViT, or 0.2 % of a batch of 64.

    Args:
        patches: of each image, those that were not dropped, or its grid, where all are there; prefix tokens are the
            model's. What is cut into windows, rows or columns is counted exactly of a grid, and of a number as of a
            square image that whole windows fill (Swin equations 1 and 2).
    """
    architecture = architecture_class(config.architecture)
    stages = architecture.stages(config)
    each = [_of_slot(stage) for stage in stages]
    of_patch = embedder_class(config.embedder).multiplications(config)
    of_image, of_pooled = _of_image(architecture.last_stage(config))
    total = 0
    for one in patches:
        count, grid = (one.cells, one) if isinstance(one, Grid) else (one, None)
        total += of_patch * count + of_image
        for stage, (attended, whole) in zip(stages, each, strict=True):
            slots, pairs = stage.work(count, grid)
            total += attended * slots + whole * stage.tokens(count, grid) + 2 * pairs * stage.config.attention_width
        if of_pooled:
            pooled = stages[-1].tokens(count, grid)
            total += of_pooled * (pooled if config.pool_prefix else pooled - config.num_prefix_tokens)
    return 2 * total


def _of_slot(stage: StageSpec) -> tuple[int, int]:
    """Multiplications of a slot in the attention of one layer, and of a token in everything else of all of them."""
    config = stage.config
    mlp = config.mlp_hidden * (3 if config.mlp == "swiglu" else 2)
    attended = 4 * config.dim * config.attention_width + _of_encoding(config, stage.made_for)
    return attended, config.depth * config.dim * mlp + stage.entry


def _of_image(config: ViTConfig) -> tuple[int, int]:
    """Multiplications of an image behind the trunk, and of a token that a probe sees."""
    # What a head of all tokens computes is its own.
    if not config.has_classifier:
        return 0, 0
    hidden = (config.head_hidden or config.dim) if config.head == "mlp" else 0
    hidden = config.head_hidden or 0 if config.head == "cosine" else hidden
    made = config.pooled_dim * (hidden or config.num_classes) + hidden * config.num_classes if config.num_classes else 0
    if config.head == "contrastive":
        # With a text of full length beside each image.
        options = build_config(ContrastiveOptions, config.head_options, "head contrastive")
        made = config.dim * options.embed_dim * options.image_proj + text_tower_flops(options)
    if not config.has_probe:
        return made, 0
    # The probe's query is the same for all images, and left out; its output goes through a projection and an MLP.
    made += config.dim * config.probe_width + 2 * config.dim * config.pool_hidden
    return made, 2 * (config.dim + 1) * config.probe_width


def _of_encoding(config: ViTConfig, made_for: Grid) -> int:
    """Multiplications of a slot in a layer that the encoding adds."""
    options = json.dumps(config.encoding_options, sort_keys=True)
    sizes = config.depth, config.heads, config.dim, config.head_dim, config.num_prefix_tokens
    return _counted(config.encoding, options, sizes, made_for)


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
    return encoding.extra_flops_per_token()


def training_flops(config: ViTConfig, patches: Iterable[int | Grid]) -> int:
    """Operations of a forward and a backward pass, which multiplies by the weights, and by the inputs."""
    return 3 * forward_flops(config, patches)
