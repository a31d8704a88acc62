"""Functions that return a whole run's configuration; they only choose. One file a data set, found by its name."""

from __future__ import annotations

import importlib
import pkgutil

from sightline.training.config import TrainConfig


def recipe_for(data: str) -> TrainConfig:
    """The recipe of a data set, as `scenes:pairs` or `imagefolder:DIR`; `TrainConfig`'s own defaults where none is."""
    name = data.partition(":")[0]
    if name in {module.name for module in pkgutil.iter_modules(__path__)}:
        return importlib.import_module(f"{__name__}.{name}").recipe(data)
    return TrainConfig(data=data)
