"""What a family's file gives `families.py`: works to be timed in turn, and the passes that all of them are timed by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from measure import Work
from torch import nn

FORWARD, STEP = "forward", "training step"


@dataclass(frozen=True)
class Case:
    """Works that are timed in the same rounds.

    Attributes:
        about: what a row says of it.
        make: the works by name, on a device, when it is their turn.
        pairs: which of them are compared, each a subject and a baseline.
    """

    about: dict[str, Any]
    make: Callable[[str], dict[str, Work]]
    pairs: tuple[tuple[str, str], ...]


def passing(model: nn.Module, work: str, batch: int, side: int, device: str = "cpu") -> Work:
    """A forward without gradients, or a whole step of SGD with momentum, over a fixed batch of images.

    Models stay in `eval`, in which no path is dropped: timm's have rates of their own.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, side, side, generator=generator).to(device)
    labels = torch.randint(10, (batch,), generator=generator).to(device)
    model.to(device).eval()

    def forward() -> object:
        with torch.inference_mode():
            return model(images)

    if work == FORWARD:
        return forward
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> object:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        return optimizer.step()

    return step
