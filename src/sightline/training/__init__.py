"""Training in one process: a clear loop that can be stopped anywhere and resumed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sightline.training.config import TrainConfig as TrainConfig
    from sightline.training.loop import TrainProgress as TrainProgress
    from sightline.training.run import TrainResult as TrainResult
    from sightline.training.run import train as train

# The configuration alone, of which the command line is made, needs no torch.
_HOMES = {"TrainConfig": "config", "TrainProgress": "loop", "TrainResult": "run", "train": "run"}

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
