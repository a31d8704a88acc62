"""The configuration of a training run: the recipe of its data, then what was asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sightline import recipes
from sightline.data.open import open_source
from sightline.data.source import Source
from sightline.data.summary import Summary
from sightline.errors import InputError
from sightline.hub.load import load_model
from sightline.io.config import build_config, dump_config, errors_of_file, merge
from sightline.io.yaml import read_yaml
from sightline.models import model_config
from sightline.training.config import BUDGETS, DEFAULT_MODEL, TrainConfig
from sightline.training.plan import as_trained_on
from sightline.training.setup import check_training_data, square_side


class TrainingData:
    """The data set of a training run, opened once: for its recipe, which may want to measure it, and for the run.

    Attributes:
        summary: what was measured of it, None where no recipe wanted that.
        progress: called with what is read, how many files of it were, and how many there are.
    """

    def __init__(self, progress: Callable[[str, int, int], None] = lambda name, done, total: None) -> None:
        self.summary: Summary | None = None
        self.progress = progress
        self._opened: dict[str, Source] = {}

    def open(self, config: TrainConfig) -> Source:
        """As `open_training_data`."""
        source = self._shown(config)
        check_training_data(config, source)
        return source

    def _shown(self, config: TrainConfig) -> Source:
        if config.data not in self._opened:
            self._opened[config.data] = open_source(config.data, functools.partial(self.progress, "listing shards"))
        return as_trained_on(self._opened[config.data], config)

    def measure(self, config: TrainConfig) -> Summary | None:
        """What the recipe of the data wants to know of it.

        Raises:
            UnreadableDataError: no image can be read, or more cannot than may be left out.
        """
        # A task that nobody asked for is the recipe's to choose.
        source = self._shown(config) if config.task == TrainConfig.task else self.open(config)
        progress = functools.partial(self.progress, "reading headers of train")
        source, _ = source.check_readable("train", skip_unreadable=config.skip_unreadable, progress=progress)
        self.summary = source.summary()
        return self.summary


def config_with_recipe(
    asked: Mapping[str, Any],
    data: TrainingData,
    *,
    file: Path | None = None,
    recipe: str | None = None,
    began: Callable[[TrainConfig], Path] | None = None,
) -> TrainConfig:
    """The configuration of a run that was asked for by these fields, checked; the recipe says the rest.

    Args:
        asked: fields of `TrainConfig`, nested, as YAML has it.
        data: opened where the recipe measures it.
        file: what they came from, for what is refused.
        recipe: the name of what all else changes; None takes the one of the data.
        began: the config.yaml of a run that goes on, from what was asked: where there is one, it stands for the recipe,
            which may say something else today.

    Raises:
        InputError: see `build_config`.
    """
    where = str(file) if file else "train"
    # Checked alone first, so that an error is about what was asked and not about the recipe; what hangs on the recipe's
    # packing, optimizer or batch is checked with it.
    alone = {key: value for key, value in asked.items() if key not in ("packing", "optimizer", "accumulate")}
    wanted = build_config(TrainConfig, alone, where)
    before = began(wanted) if began is not None and recipe is None else None
    if before is not None and before.exists():
        base = dump_config(build_config(TrainConfig, read_yaml(before), str(before)))
    else:
        base = _recipe_for(wanted, asked.get("data"), data, recipe, file)
    _drop_leftovers(base, asked)
    mine = merge(base, asked)
    if recipe in recipes.FINE_TUNING and mine["init_from"] is None:
        raise InputError(f"recipe {recipe}: goes on from a trained model (expected --init-from RUN)")
    made = build_config(TrainConfig, mine, where)
    if made.optimizer.ema is None and (asked.get("optimizer") or {}).get("ema_warmup") is False:
        raise InputError("optimizer.ema_warmup False: has no effect with ema None (expected optimizer.ema too)")
    return made


def _recipe_for(
    wanted: TrainConfig, named: str | None, data: TrainingData, recipe: str | None, file: Path | None
) -> dict[str, Any]:
    """The fields of a recipe, as they suit the model and the resolution that are asked for."""

    def measure(_: str) -> Summary | None:
        if wanted.init_from is not None:
            return None
        with errors_of_file(file):
            return data.measure(wanted)

    chosen = recipes.default_recipe(wanted.data, measure) if recipe is None else recipes.recipe(recipe, named, measure)
    base, begun = dump_config(chosen), None
    # Another model has its own resolution, not the recipe's.
    by_model = recipes.sized_by_data(recipe, base["data"]) and bool(wanted.init_from or wanted.model)
    if wanted.init_from is not None:
        begun = load_model(wanted.init_from).config
        # What the checkpoint says of its images and its encoding stays, unless asked to change.
        kept = {key: value for key, value in base["model_options"].items() if key not in ("mean", "std")}
        base |= {"model_options": kept, "encoding": begun.encoding, "model": None}
    if chosen.packing is not None and chosen.packing.resolutions is not None:
        # Its sides and tokens in proportion to the resolution and the patches that are asked for.
        was = model_config(chosen.model or DEFAULT_MODEL)
        model = begun or model_config(wanted.model or chosen.model or DEFAULT_MODEL)
        before = chosen.resolution or square_side(was)
        sides = (wanted.resolution or (square_side(model) if by_model else before)) / before
        cells = (sides * was.patch_size / model.patch_size) ** 2
        base["packing"]["resolutions"] = [max(round(side * sides), 1) for side in chosen.packing.resolutions]
        for name in ("tokens", "most_tokens"):
            if base["packing"][name] is not None:
                base["packing"][name] = max(round(base["packing"][name] * cells), 1)
    if by_model:
        base["resolution"] = None
    return base


def _drop_leftovers(base: dict[str, Any], asked: Mapping[str, Any]) -> None:
    """Leave out of a recipe what goes with its own length, task, packing or optimizer, where another is asked for."""
    if any(asked.get(name) is not None for name in BUDGETS):
        base |= dict.fromkeys(BUDGETS)
    packing = asked.get("packing")
    if isinstance(packing, Mapping) and "drop" in packing and base["packing"] is not None:
        base["packing"]["drop_options"] = {}
    if asked.get("task", base["task"]) != base["task"]:
        base |= {"loss": None, "label_smoothing": None, "task_options": {}}
    optimizer, other = base["optimizer"], asked.get("optimizer")
    if isinstance(other, Mapping):
        for choice, fields in (("name", ("betas", "eps", "momentum")), ("schedule", ("timescale",))):
            if other.get(choice, optimizer[choice]) != optimizer[choice]:
                optimizer |= dict.fromkeys(fields)
        if other.get("schedule", optimizer["schedule"]) in ("constant", "rsqrt") and not optimizer["cooldown"]:
            optimizer["final_lr"] = 0.0
