"""Functions that return a whole run's configuration; they only choose. One of the name of a data set is its recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sightline.data.summary import Summary
from sightline.errors import InputError, choose
from sightline.recipes import dense, embedded, folders, papers
from sightline.training.config import TrainConfig

# Those whose sizes follow from the images that they are for, and so from the model that is asked for.
BY_DATA = ("imagefolder", "navit_imagefolder")
# Those that need a model to begin with.
FINE_TUNING = ("lookhere_highres", "vit_finetune")
# The data set that each is for. What is measured of a folder before its recipe chooses, no other one asks.
_RECIPES: dict[str, tuple[str, Callable[..., Any]]] = {
    "detect_scenes": ("scenes", dense.detect_scenes),
    "deit3_400ep": ("imagefolder", papers.deit3_400ep),
    "digits": ("digits", embedded.digits),
    "imagefolder": ("imagefolder", folders.imagefolder),
    "lookhere_150ep": ("imagefolder", papers.lookhere_150ep),
    "lookhere_highres": ("imagefolder", papers.lookhere_highres),
    "navit_imagefolder": ("imagefolder", folders.navit_imagefolder),
    "navit_pretrain": ("imagefolder", papers.navit_pretrain),
    "navit_scenes": ("scenes", embedded.navit_scenes),
    "scenes": ("scenes", embedded.scenes),
    "segment_scenes": ("scenes", dense.segment_scenes),
    "vit_finetune": ("imagefolder", papers.vit_finetune),
    "vit_imagenet": ("imagefolder", papers.vit_imagenet),
    "vit_scenes": ("scenes", embedded.vit_scenes),
}


def recipe(name: str, data: str | None = None, summarise: Callable[[str], Summary | None] | None = None) -> TrainConfig:
    """The recipe of that name.

    Args:
        data: the data set, as `scenes:pairs` or `imagefolder:DIR`; the recipe's own unless given.
        summarise: called with a data set whose recipe chooses by what is in it; None leaves that at its defaults.

    Raises:
        InputError: there is none, or it is for other data.
    """
    if name not in _RECIPES:
        raise choose("recipe", name, list(_RECIPES))
    kind, make = _RECIPES[name]
    if data is None:
        return make()
    asked = data.partition(":")[0]
    if asked != kind:
        fitting = [other for other, (known, _) in _RECIPES.items() if known == asked]
        said = f"; recipes for {asked}: {', '.join(fitting)}" if fitting else ""
        raise InputError(f"recipe {name}: is for {kind}, not for {data}{said}")
    return make(data, summarise(data)) if summarise is not None and kind == "imagefolder" else make(data)


def recipe_for(data: str, summarise: Callable[[str], Summary | None] | None = None) -> TrainConfig:
    """The recipe of a data set, as `scenes:pairs` or `imagefolder:DIR`; `TrainConfig`'s own defaults where none is."""
    name = data.partition(":")[0]
    return recipe(name, data, summarise) if name in _RECIPES else TrainConfig(data=data)
