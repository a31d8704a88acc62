"""Functions that return a whole run's configuration; they only choose. One file a recipe, found by its name: that of a
data set, whose recipe it then is, or another one. Each says in `DATA` which data set it is for."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from sightline.data.summary import Summary
from sightline.errors import InputError, choose
from sightline.training.config import TrainConfig

# A demonstration of several runs, not one run.
_NO_RECIPE = ("demo",)
# What is measured of a folder before its recipe chooses.
_MEASURED = "imagefolder"


def list_recipes() -> list[str]:
    """The names that `recipe` takes."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NO_RECIPE)


def recipe(name: str, data: str | None = None, summarise: Callable[[str], Summary | None] | None = None) -> TrainConfig:
    """The recipe of that name.

    Args:
        data: the data set, as `scenes:pairs` or `imagefolder:DIR`; the recipe's own unless given.
        summarise: called with a data set whose recipe chooses by what is in it; None leaves that at its defaults.

    Raises:
        InputError: there is none, or it is for other data.
    """
    if name not in list_recipes():
        raise choose("recipe", name, list_recipes())
    module = _module(name)
    if data is None:
        return module.recipe()
    kind = data.partition(":")[0]
    if kind != module.DATA:
        fitting = [other for other in list_recipes() if kind == _module(other).DATA]
        said = f"; recipes for {kind}: {', '.join(fitting)}" if fitting else ""
        raise InputError(f"recipe {name}: is for {module.DATA}, not for {data}{said}")
    if summarise is None or module.DATA != _MEASURED:
        return module.recipe(data)
    return module.recipe(data, summarise(data))


def recipe_for(data: str, summarise: Callable[[str], Summary | None] | None = None) -> TrainConfig:
    """The recipe of a data set, as `scenes:pairs` or `imagefolder:DIR`; `TrainConfig`'s own defaults where none is."""
    name = data.partition(":")[0]
    return recipe(name, data, summarise) if name in list_recipes() else TrainConfig(data=data)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
