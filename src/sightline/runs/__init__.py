"""What a command does, in one call: open a run or a model, measure it, look into it, ask it, report on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sightline.runs.options import EvaluateOptions as EvaluateOptions
    from sightline.runs.options import OpenOptions as OpenOptions
    from sightline.runs.run import Run as Run

_HOMES = {"Run": "run", "EvaluateOptions": "options", "OpenOptions": "options"}

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
