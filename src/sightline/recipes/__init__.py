"""Functions that return a whole run's configuration; they only choose. One file a recipe, found by its name: that of a
data set, whose recipe it then is, or another one."""

from __future__ import annotations

import importlib
import pkgutil

from sightline.errors import choose
from sightline.training.config import TrainConfig

# A demonstration of several runs, not one run.
_NO_RECIPE = ("demo",)


def list_recipes() -> list[str]:
    """The names that `recipe` takes."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NO_RECIPE)


def recipe(name: str) -> TrainConfig:
    """The recipe of that name, with its own data set.

    Raises:
        InputError: there is none.
    """
    if name not in list_recipes():
        raise choose("recipe", name, list_recipes())
    return importlib.import_module(f"{__name__}.{name}").recipe()


def recipe_for(data: str) -> TrainConfig:
    """The recipe of a data set, as `scenes:pairs` or `imagefolder:DIR`; `TrainConfig`'s own defaults where none is."""
    name = data.partition(":")[0]
    if name in list_recipes():
        return importlib.import_module(f"{__name__}.{name}").recipe(data)
    return TrainConfig(data=data)
