"""What `sightline train` was asked for by a file and the command line, and what is said of a training on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sightline.cli.progress import Bars
from sightline.errors import InputError
from sightline.hub.fine_tune import describe_init
from sightline.hub.load import load_model
from sightline.io.read import format_bytes
from sightline.io.yaml import read_yaml
from sightline.recipes.config import TrainingData, config_with_recipe
from sightline.reports.words import quantity
from sightline.runs.settings import apply_settings
from sightline.training.config import TrainConfig
from sightline.training.loop import TrainProgress
from sightline.training.setup import TrainSetup


def training_config(
    file: Path | None,
    flags: Mapping[str, object],
    settings: Sequence[str],
    recipe: str | None = None,
    *,
    data: TrainingData,
    began: Callable[[TrainConfig], Path] | None = None,
) -> TrainConfig:
    """What `sightline train` was asked for, checked.

    Args:
        file: a YAML file of `TrainConfig`'s fields.
        flags: fields that have their own option; None where not given.
        settings: "key=value", as `--set` gives them.
        recipe, data, began: as `config_with_recipe`.

    Raises:
        InputError: see `build_config`; also a field that a flag and `--set` both give.
    """
    given = {key: value for key, value in flags.items() if value is not None}
    named = {setting.partition("=")[0].strip(): setting for setting in settings}
    for key in named.keys() & given.keys():
        raise InputError(f"--set {named[key]}: --{key.replace('_', '-')} is given as well, expected one of them")
    asked = apply_settings({**(read_yaml(file) if file else {}), **given}, settings)
    config = config_with_recipe(asked, data, file=file, recipe=recipe, began=began)
    if config.packing is not None and "batch_size" in named:
        raise InputError(f"batch_size {asked['batch_size']}: not with packing (expected packing.tokens, of a step)")
    return config


def say_set_up(asked: TrainConfig, data: TrainingData, setup: TrainSetup, bars: Bars) -> None:
    """Say on stderr which images are left out, what was chosen by what was measured of the data, and what a model keeps
    of the one that it begins with."""
    bars.say_left_out(setup.source)
    if (found := data.summary) is not None:
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (found.mean, found.std))
        # None is the model's own.
        size = "" if asked.resolution is None else f" at {asked.resolution} px"
        print(
            f"{asked.data}: {found.images:,} images of about {found.side:.0f} px: {asked.model}{size}; "
            f"mean {mean} and deviation {std} of {found.sampled} of them",
            file=sys.stderr,
        )
    if asked.init_from is not None:
        began = str(setup.last or asked.init_from)
        print(describe_init(load_model(began), setup.model, began), file=sys.stderr)


def progress_notes(at: TrainProgress) -> list[str]:
    """What stands behind the bar of a training, the most wanted first."""
    notes = ["no image could be read" if at.loss is None else f"loss {at.loss:.3f}"]
    if at.validated is not None:
        notes.append(f"validation {quantity(at.validated.value, at.validated.unit)}")
    if at.pace.images_per_second is not None:
        notes += [f"{at.pace.images_per_second:,.0f} img/s", f"{at.pace.tokens_per_second:,.0f} tok/s"]
    if at.pace.peak_share is not None:
        notes.append(f"{100 * at.pace.peak_share:.0f} % of peak")
    return [*notes, format_bytes(at.pace.memory)]
