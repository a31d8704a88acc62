"""Batches of timm's NaFlex loader: patches of images of several sizes, padded to one length."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sightline.errors import InputError
from sightline.tokens.layout import TokenLayout

_KEYS = ("patches", "patch_coord", "patch_valid")


def naflex_rows(batch: Mapping[str, Tensor], channels: int, num_prefix_tokens: int) -> tuple[Tensor, TokenLayout]:
    """Such a batch as flat rows [1, patches, values] and where they stand, without what it was padded with.

    Args:
        batch: `patches` [batch, length, height * width * channels], channel by channel in each pixel, or [batch,
            length, height, width, channels]; `patch_coord` int64 [batch, length, 2], (y, x); `patch_valid` bool
            [batch, length]. What else is there (`seq_len`) is not read.

    Raises:
        InputError: a key is missing, or an image has no patch.
    """
    if missing := [key for key in _KEYS if key not in batch]:
        raise InputError(f"images: a batch without {', '.join(missing)} (expected {', '.join(_KEYS)})")
    patches, places, valid = (batch[key] for key in _KEYS)
    here = [where[there] for where, there in zip(places, valid, strict=True)]
    if not all(map(len, here)):
        raise InputError("patch_valid: an image has no patch (expected one or more)")
    grids = [tuple((where.amax(dim=0) + 1).tolist()) for where in here]
    layout = TokenLayout.packed(grids, num_prefix_tokens=num_prefix_tokens, device=patches.device)
    if any(not torch.equal(where, one.coords[0]) for where, one in zip(here, layout.segments, strict=True)):
        # Some were dropped, or cut off where the batch is too short.
        layout = layout.keep([where[:, 0] * cols + where[:, 1] for where, (_, cols) in zip(here, grids, strict=True)])
    rows = patches[valid].flatten(1).unflatten(1, (-1, channels)).transpose(1, 2).flatten(1)
    return rows.unsqueeze(0), layout
