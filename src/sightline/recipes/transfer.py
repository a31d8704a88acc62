"""How ViT is fine-tuned to other data sets (appendix B.1.1, table 4): steps, learning rates, and what is held out to
choose among them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.open import open_source, parse_share, parse_spec
from sightline.data.source import Source
from sightline.data.sources.vtab import TASKS, tasks_below
from sightline.errors import InputError, unknown_name_error

RATES = (0.001, 0.003, 0.01, 0.03)
# Of data that the table does not name: short below so many images.
_FEW, _SHORT, _LONG = 10_000, 500, 10_000
_WARMUP = 500


@dataclass(frozen=True)
class TransferSetting:
    """A line of table 4: the `steps`, the learning rates `lrs`, of which one alone is no grid, and the share of `train`
    that is `held_out` to choose among them."""

    steps: int
    lrs: tuple[float, ...] = RATES
    held_out: float = 0.1


IMAGENET = TransferSetting(20_000, (0.003, 0.01, 0.03, 0.06), 0.01)
CIFAR = TransferSetting(10_000, held_out=0.02)
VTAB_SETTING = TransferSetting(2_500, (0.01,), 0.2)
"""One setting for all of its tasks, without a grid."""


@dataclass(frozen=True)
class TransferData:
    """A data set that a model is transferred to.

    Attributes:
        spec: as `open_source` takes it; name: of its folder; title: as tables have it.
        group: of VTAB-1k's tasks, "" of another data set.
        setting: what the paper does with it.
        has_minival: it has a split of its own to choose on.
        drawn: its images are made at any size, and shown in training in a way of their own.
        images: of train; None of a split that never ends.
    """

    spec: str
    name: str
    title: str
    group: str
    setting: TransferSetting
    has_minival: bool
    drawn: bool
    images: int | None

    @property
    def grid_spec(self) -> str:
        """The data set with something held out of `train`."""
        return self.spec if self.has_minival else f"{self.spec},minival={self.setting.held_out:g}"


def setting_of(source: Source) -> TransferSetting:
    """The line of table 4 for a data set: ImageNet's for 1,000 classes and a million images, CIFAR's for 50,000 images
    of 10 or 100 classes; of others Pets' and Flowers' below 10,000 images, and as many steps as CIFAR beyond."""
    images, classes = source.length("train"), len(source.classes)
    if classes == 1000 and (images or 0) >= 1_000_000:
        return IMAGENET
    if images == 50_000 and classes in (10, 100):
        return CIFAR
    return TransferSetting(_SHORT if images is not None and images < _FEW else _LONG)


def images_of(steps: int, batch_size: int, images: int | None) -> int:
    """How many images are shown in so many steps: no step reaches into the next pass over `images` of train."""
    if images is None:
        return steps * batch_size
    passes, rest = divmod(steps, -(-images // batch_size))
    return passes * images + min(rest * batch_size, images)


def open_transfer_data(specs: Sequence[str]) -> tuple[list[TransferData], list[str]]:
    """The data sets that are named, each task of a folder of VTAB-1k by itself; and the titles of tasks whose lists are
    not there.

    Raises:
        InputError: one cannot be opened, has no split train or test, or no classes; two have the same name.
    """
    found, missing = list[TransferData](), list[str]()
    for spec in specs:
        kind, argument, shares = parse_spec(spec)
        tasks = tasks_below(Path(argument)) if kind == "vtab" else {}
        missing += [TASKS[name].title for name, at in tasks.items() if at is None]
        others = {one.parent.name for one in Path(argument).glob("*/test.txt")} - TASKS.keys() if tasks else ()
        for other in sorted(others):
            raise unknown_name_error(f"{argument}: task of VTAB-1k", other, TASKS)
        places = [f"vtab:{at}" for at in tasks.values() if at] if not shares else []
        found += [_transfer_data(one) for one in places or [spec]]
    for one in found:
        if sum(other.name == one.name for other in found) > 1:
            raise InputError(f"transfer: two data sets are called {one.name}: expected each once", field="data")
    if not found:
        raise InputError("transfer: expected at least one data set, as imagefolder:DIR or vtab:DIR", field="data")
    return found, missing


def _transfer_data(spec: str) -> TransferData:
    kind, argument, shares = parse_spec(spec)
    share = None
    if text := shares.get("minival"):
        # What is held out for the grid is learned from in the end.
        share, spec = parse_share(spec, "minival", text), spec.replace(f",minival={text}", "")
    source = open_source(spec)
    for split in ("train", "test"):
        source.check(split)
    if "label" not in source.provides:
        raise InputError(f"transfer: {spec}: its images have no classes", field="data", value=spec)
    place = Path(argument.partition(",")[0]).resolve()
    known = TASKS.get(place.name) if kind == "vtab" else None
    name = re.sub(r"[^\w.+-]+", "_", place.name if place.exists() and argument else spec).strip("_")
    setting = VTAB_SETTING if kind == "vtab" else setting_of(source)
    setting = setting if share is None else dataclasses.replace(setting, held_out=share)
    drawn, apart = source.is_synthetic or source.transform is None, "minival" in source.splits
    group = known.group if known else ""
    title, images = known.title if known else name, source.length("train")
    return TransferData(spec, name, title, group, setting, apart, drawn, images)


def transfer_fields(
    data: TransferData, model: str, *, steps: int, resolution: int, batch_size: int, final: bool
) -> dict[str, Any]:
    """What all runs on a data set are trained by, as the `base` of a sweep; the learning rate and the seed come to it.

    Chosen, as the paper is silent: the rate rises over 500 steps, a fifth of a run at most; images of a folder are cut
    as Inception's, those of VTAB-1k as `TASKS` says, drawn ones not.

    Args:
        final: on all of `train`, else without what is held out.
    """
    images = data.images
    if not final and not data.has_minival:
        images = open_source(data.grid_spec).length("train")
    fields: dict[str, Any] = {
        "recipe": "vit_finetune",
        "data": data.spec if final else data.grid_spec,
        "init_from": model,
        "resolution": resolution,
        "images": images_of(steps, batch_size, images),
        "batch_size": batch_size,
        "optimizer": {"warmup": min(_WARMUP, max(steps // 5, 1))},
        "validation": None,
    }
    is_vtab = data.spec.startswith("vtab:")
    if data.drawn or is_vtab:
        fields["parts"] = None
    if is_vtab:
        # BiT shows the whole image in the test, whatever its aspect.
        fields["model_options"] = {"crop_mode": "squash", "crop": 1.0}
    return fields
