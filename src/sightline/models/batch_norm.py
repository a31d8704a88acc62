"""Batch norms of heads: of one place alone they take the statistics that were kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.nn.modules.batchnorm import _BatchNorm


def normalize_with_running_stats(norm: _BatchNorm, x: Tensor) -> Tensor:
    """[any, channels, ...] normed as in evaluation, whatever the norm's mode."""
    return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)


class PatchBatchNorm(nn.BatchNorm1d):
    """Batch norm of tokens [tokens, channels]; of one token, which has no spread, by what was kept."""

    def forward(self, input: Tensor) -> Tensor:
        """[tokens, channels] -> the same shape."""
        return (
            normalize_with_running_stats(self, input) if self.training and len(input) == 1 else super().forward(input)
        )


class JointBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics are those of all places of all maps together, whatever their sizes: a pack is one
    batch. Where there is but one place, those that were kept are taken, as in evaluation."""

    def forward(self, input: Tensor) -> Tensor:
        """[maps, channels, height, width] -> the same shape."""
        alone = self.training and input.numel() == input.shape[1]
        return normalize_with_running_stats(self, input) if alone else super().forward(input)

    def of(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Maps [rows, channels, height, width] of any sizes -> the same shapes."""
        if not self.training:
            return [self(one) for one in maps]
        # [1, channels, places of all maps, 1].
        places = [one.transpose(0, 1).flatten(1) for one in maps]
        normed = self(torch.cat(places, dim=1)[None, ..., None])
        parts = normed[0, ..., 0].split([one.shape[1] for one in places], dim=1)
        pairs = zip(parts, maps, strict=True)
        return [part.unflatten(1, (one.shape[0], *one.shape[2:])).transpose(0, 1) for part, one in pairs]
