"""What a model refuses before it computes anything."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.errors import InputError


def check_image(image: object, dims: int, channels: int, what: str) -> Tensor:
    """Refuse what is no normalised image, or batch of them, with so many channels."""
    if not isinstance(image, Tensor) or image.dim() != dims or image.shape[-3] != channels:
        got = list(image.shape) if isinstance(image, Tensor) else type(image).__name__
        axes = "batch, channels, height, width" if dims == 4 else "channels, height, width"
        raise InputError(f"{what}: expected [{axes}] with {channels} channels, got {got}")
    if not image.is_floating_point():
        raise InputError(f"{what}: expected normalised floating point values, got {image.dtype}")
    return image


def check_kind(values: Tensor, anchor: Tensor, what: str) -> None:
    """Refuse another precision than that of the weights, except under autocast, and values elsewhere."""
    # Weights whose values are brought when they are needed stand on the meta device.
    if not anchor.is_meta and values.device.type != anchor.device.type:
        said = "the meta device, and has no values" if values.is_meta else str(values.device)
        raise InputError(f"{what}: is on {said} (expected {anchor.device}, as the model)")
    if values.dtype == anchor.dtype or anchor.dtype.itemsize < 2:
        return
    if torch.is_autocast_enabled(values.device.type) and values.dtype != torch.float64:
        return
    ours = str(anchor.dtype).removeprefix("torch.")
    raise InputError(f"{what}: is {values.dtype}, expected torch.{ours} as the model's weights (.to(torch.{ours}))")
