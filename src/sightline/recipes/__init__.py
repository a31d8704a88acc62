"""Functions that return a whole run's configuration; they only choose. One of the name of a data set is its recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sightline.data.open import list_sources, recognise_layout, source_class
from sightline.data.summary import Summary
from sightline.errors import InputError, unknown_name_error
from sightline.recipes import dense, embedded, flexible, folders, papers, self_supervised, video
from sightline.training.config import TrainConfig

_LABELLED = ("imagefolder", "hf", "wds", "vtab", "csv")
_CAPTIONED = ("csv", "coco-captions", "hf", "wds")
# Those whose sizes follow from the images that they are for, and so from the model that is asked for.
_SIZED_BY_DATA = ("clips", "csv", "imagefolder", "images", "navit_imagefolder", "vtab")
# Those that need a model to begin with.
FINE_TUNING = ("lookhere_highres", "vit_finetune")
# The data sets that each is for: what is called as the first of them is what all of them get unasked. What is measured
# of stored images before their recipe chooses, no other one asks.
_RECIPES: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "clips": (("clips",), video.clips),
    "contrastive_scenes": (("scenes",), embedded.contrastive_scenes),
    "csv": (_CAPTIONED[:2], folders.csv),
    "deit3_400ep": (_LABELLED, papers.deit3_400ep),
    "detect_scenes": (("scenes",), dense.detect_scenes),
    "digits": (("digits",), embedded.digits),
    "flexi_scenes": (("scenes",), flexible.flexi_scenes),
    "flexivit": (_LABELLED, flexible.flexivit),
    "imagefolder": (_LABELLED, folders.imagefolder),
    "images": (("images",), self_supervised.images),
    "lookhere_150ep": (_LABELLED, papers.lookhere_150ep),
    "lookhere_highres": (_LABELLED, papers.lookhere_highres),
    "masked_patches": (("scenes",), self_supervised.masked_patches),
    "moving": (("moving",), video.moving),
    "navit_contrastive": (_CAPTIONED, papers.navit_contrastive),
    "navit_imagefolder": (_LABELLED, folders.navit_imagefolder),
    "navit_pretrain": (_LABELLED, papers.navit_pretrain),
    "navit_scenes": (("scenes",), embedded.navit_scenes),
    "scenes": (("scenes",), embedded.scenes),
    "segment_scenes": (("scenes",), dense.segment_scenes),
    "vit_finetune": ((*_LABELLED, "digits", "scenes"), papers.vit_finetune),
    "vit_imagenet": (_LABELLED, papers.vit_imagenet),
    "vit_masked_patches": ((*_LABELLED, "images"), papers.vit_masked_patches),
    "vit_scenes": (("scenes",), embedded.vit_scenes),
    "vtab": (("vtab",), folders.imagefolder),
}

# What is said of images -> the task that learns it.
_TASKS = {"pixels": "segmentation", "objects": "detection", "captions": "contrastive"}


def list_recipes() -> tuple[str, ...]:
    """The names of the recipes."""
    return tuple(_RECIPES)


def supports(name: str, data: str) -> bool:
    """Whether the recipe of that name is for a data set, as `imagefolder:DIR`."""
    return data.partition(":")[0] in _RECIPES[name][0]


def sized_by_data(name: str | None, data: str) -> bool:
    """Whether the size of a recipe's images follows from the data, or from a model; None is that of the data set."""
    if name is None:
        return any(supports(one, data) for one in ("csv", "imagefolder", "images", "clips", "vtab"))
    return name in _SIZED_BY_DATA


def recipe(name: str, data: str | None = None, summarise: Callable[[str], Summary | None] | None = None) -> TrainConfig:
    """The recipe of that name.

    Args:
        data: the data set, as `scenes:pairs` or `imagefolder:DIR`; the recipe's own unless given.
        summarise: called with a data set whose recipe chooses by what is in it; None leaves that at its defaults.

    Raises:
        InputError: there is none, or it is for other data.
    """
    if name not in _RECIPES:
        raise unknown_name_error("recipe", name, list(_RECIPES))
    kinds, make = _RECIPES[name]
    if data is None:
        return make()
    if not supports(name, data):
        if (meant := recognise_layout(data)) != data:
            raise InputError(f"recipe {name}: data {data}: a path alone; did you mean {meant}?")
        fitting = [other for other in _RECIPES if supports(other, data)]
        said = f"; recipes for {data.partition(':')[0]}: {', '.join(fitting)}" if fitting else ""
        raise InputError(f"recipe {name}: is for {', '.join(kinds)}, not for {data}{said}")
    return make(data, summarise(data)) if summarise is not None and name in _SIZED_BY_DATA else make(data)


def default_recipe(data: str, summarise: Callable[[str], Summary | None] | None = None) -> TrainConfig:
    """The recipe of a data set, as `scenes:pairs`, `imagefolder:DIR` or `hf:NAME`; where none is,
    `TrainConfig`'s own defaults with the task of the data."""
    found = [name for name, (kinds, _) in _RECIPES.items() if name == kinds[0] and supports(name, data)]
    if found:
        return recipe(found[0], data, summarise)
    kind = data.partition(":")[0]
    # What is not known is refused where it is opened.
    said = source_class(kind).provides if kind in list_sources() else ()
    return TrainConfig(data=data, task=_TASKS.get(said[0] if said else "", TrainConfig.task))
