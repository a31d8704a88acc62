"""A running mean of the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Ema:
    """mean <- decay * mean + (1 - decay) * weight after each step, over parameters."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.mean = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for name, weight in model.named_parameters():
            self.mean[name].lerp_(weight, 1 - self.decay)

    @torch.no_grad()
    def exchange(self, model: nn.Module) -> None:
        """Swap the mean and the model's weights; twice is nothing."""
        for name, weight in model.named_parameters():
            kept = weight.detach().clone()
            weight.copy_(self.mean[name])
            self.mean[name].copy_(kept)

    def tensors(self) -> dict[str, Tensor]:
        return self.mean
