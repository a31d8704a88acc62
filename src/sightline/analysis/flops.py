"""What a pass computes, counted from shapes: two operations a multiplication with its addition."""

from __future__ import annotations

from collections.abc import Iterable

from sightline.models import ViTConfig


def forward_flops(config: ViTConfig, patches: Iterable[int]) -> int:
    """Operations of the matrix products of a forward pass over images of these lengths, packed or not.

    Attention is counted whole inside each image, also where a pattern forbids some of it, and not at all between
    images. Norms, activations, softmax and what an encoding computes are left out.

    Args:
        patches: of each image, those that were not dropped; prefix tokens are the model's.
    """
    dim, width = config.dim, config.attention_width
    pooled = config.has_probe and config.has_classifier
    mlp = config.mlp_hidden * (3 if config.mlp == "swiglu" else 2)
    # Multiplications of one slot, of one patch and of one image.
    of_slot = config.depth * dim * (4 * width + mlp)
    of_patch = config.cutter.values * dim
    of_image = 0
    if config.has_classifier and config.num_classes:
        # What a head of all tokens computes is its own.
        hidden = (config.head_hidden or dim) if config.head == "mlp" else 0
        of_image = dim * (hidden or config.num_classes) + hidden * config.num_classes
    if pooled:
        # The probe's query is the same for all images, and left out; its output goes through a projection and an MLP.
        of_image += dim * config.probe_width + 2 * dim * config.pool_hidden
    total = 0
    for count in patches:
        slots = count + config.num_prefix_tokens
        total += of_slot * slots + of_patch * count + of_image + config.depth * 2 * slots * slots * width
        if pooled:
            seen = slots if config.pool_prefix else count
            total += 2 * seen * (dim + 1) * config.probe_width
    return 2 * total


def training_flops(config: ViTConfig, patches: Iterable[int]) -> int:
    """Operations of a forward and a backward pass, which multiplies by the weights, and by the inputs."""
    return 3 * forward_flops(config, patches)
