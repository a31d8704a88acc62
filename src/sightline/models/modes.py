"""Training and evaluation mode, for the length of a measurement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Every module of `model` in evaluation mode; afterwards each is as it was, also where only some were training.

    What measures a model does not trust its caller: one that drops paths gives other numbers every time.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
