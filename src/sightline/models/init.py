"""What the parameters of a model are before training."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from sightline.encodings.base import PositionEncoding

_FILLS: ContextVar[bool] = ContextVar("sightline_fills", default=True)


@contextlib.contextmanager
def skip_init() -> Iterator[None]:
    """Inside, weights of new models are not drawn as `initialise` says: every one of them is about to be read."""
    token = _FILLS.set(False)
    try:
        yield
    finally:
        _FILLS.reset(token)


@torch.no_grad()
def truncated_normal_(weight: Tensor, std: float) -> None:
    """Draw from a normal distribution that is cut at two standard deviations, by the inverse of its distribution
    function: a number is drawn once, where torch draws all of them again while one is beyond."""
    share = math.erf(2**0.5)
    weight.uniform_(-share, share).erfinv_().mul_(2**0.5 * std).clamp_(-2 * std, 2 * std)


def init_weights(model: nn.Module) -> None:
    """What a trunk's parameters are before training.

    Linear weights from a normal distribution of std 1 / sqrt(fan-in) cut at two (LeCun), biases 0.

    A fixed std of 0.02 is made for wide models: at a width of 192 it learns far more slowly
    (docs/explanation/decisions/init.md). CLS, register and probe tokens have a std of 1, the scale of embedded patches.
    Encodings have their own.
    """
    # Of shapes alone there is nothing to fill, and torch would load its compiler to draw it.
    if not _FILLS.get() or any(parameter.is_meta for parameter in model.parameters()):
        return
    parts = [part for part in model.modules() if isinstance(part, PositionEncoding)]
    own = {id(inner) for part in parts for inner in part.modules()}
    for part in model.modules():
        if isinstance(part, nn.Linear) and id(part) not in own:
            truncated_normal_(part.weight, part.in_features**-0.5)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    for name, parameter in model.named_parameters():
        if not name.startswith("encoding.") and name.rpartition(".")[2] in ("cls_token", "reg_token", "latent"):
            nn.init.normal_(parameter)
