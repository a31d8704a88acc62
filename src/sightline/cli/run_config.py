"""The configuration of a training run: the recipe of its data, then a file, then what the command line says."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sightline import recipes
from sightline.analysis.memory import warn_of_memory
from sightline.cli.config import apply_settings, named_after
from sightline.cli.next_step import warn
from sightline.cli.progress import Bars
from sightline.data.config import PackingConfig
from sightline.data.open import open_source
from sightline.data.source import Source
from sightline.data.summary import Summary
from sightline.errors import InputError
from sightline.hub.fine_tune import describe_init
from sightline.hub.load import load_model
from sightline.io.config import build_config, dump_config, merge
from sightline.io.yaml import read_yaml
from sightline.models import Model, ViTConfig, model_config
from sightline.training.config import BUDGETS, DEFAULT_MODEL, TrainConfig
from sightline.training.plan import as_trained_on, with_patch_sizes
from sightline.training.prepare import build_model, model_config_of, square_side
from sightline.training.run import check_training_data

_QUIET_SECONDS = 0.5


class TrainingSources:
    """The data set of a training run, opened once: for its recipe, which may want to measure it, and for the run."""

    def __init__(self) -> None:
        self._opened: dict[str, Source] = {}
        self._summary: Summary | None = None

    def open(self, config: TrainConfig) -> Source:
        """As `open_training_data`."""
        source = self._shown(config)
        check_training_data(config, source)
        return source

    def _shown(self, config: TrainConfig) -> Source:
        if config.data not in self._opened:
            self._opened[config.data] = open_source(config.data)
        return as_trained_on(self._opened[config.data], config)

    def summary(self, config: TrainConfig) -> Summary | None:
        """What the recipe of the data wants to know of it, with the headers read in sight of the user.

        Raises:
            UnreadableDataError: no image can be read, or more cannot than may be left out.
        """
        # What takes no time is not worth a line: more may yet be refused.
        with Bars(late=_QUIET_SECONDS) as bars:
            progress = functools.partial(bars.move, "reading headers of train")
            # A task that nobody asked for is the recipe's to choose.
            source = self._shown(config) if config.task == TrainConfig.task else self.open(config)
            source, _ = source.check_readable("train", skip_unreadable=config.skip_unreadable, progress=progress)
            self._summary = source.summary()
        return self._summary

    def say(self, config: TrainConfig) -> None:
        """On stderr what was chosen by what was measured."""
        found = self._summary
        if found is None:
            return
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (found.mean, found.std))
        # None is the model's own.
        size = "" if config.resolution is None else f" at {config.resolution} px"
        print(
            f"{config.data}: {found.images:,} images of about {found.side:.0f} px: {config.model}{size}; "
            f"mean {mean} and deviation {std} of {found.sampled} of them",
            file=sys.stderr,
        )


def training_config(
    file: Path | None,
    flags: Mapping[str, object],
    settings: Sequence[str],
    recipe: str | None = None,
    *,
    summarise: Callable[[TrainConfig], Summary | None],
    began: Callable[[TrainConfig], Path] | None = None,
) -> TrainConfig:
    """What `sightline train` was asked for, checked.

    Args:
        recipe: the name of what all else changes; None takes the one of the data.
        file: a YAML file of `TrainConfig`'s fields.
        flags: fields that have their own option; None where not given.
        settings: "key=value", as `--set` gives them.
        summarise: what the recipe wants to know of the data that was asked for.
        began: the config.yaml of a run that goes on, from what was asked: where there is one, it stands for the recipe,
            which may say something else today.

    Raises:
        InputError: see `build_config`; also a field that a flag and `--set` both give.
    """
    given = {key: value for key, value in flags.items() if value is not None}
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key in given:
            raise InputError(f"--set {setting}: --{key.replace('_', '-')} is given as well, expected one of them")
    asked = apply_settings({**(read_yaml(file) if file else {}), **given}, settings)
    config = config_of(asked, file, recipe, summarise=summarise, began=began)
    if config.packing is not None and any(one.partition("=")[0].strip() == "batch_size" for one in settings):
        raise InputError(f"batch_size {asked['batch_size']}: not with packing (expected packing.tokens, of a step)")
    return config


def config_of(
    asked: Mapping[str, Any],
    file: Path | None,
    recipe: str | None = None,
    *,
    summarise: Callable[[TrainConfig], Summary | None],
    began: Callable[[TrainConfig], Path] | None = None,
) -> TrainConfig:
    """The configuration of a run that was asked for by these fields, checked.

    Args:
        asked: nested, as YAML has it.
        file: what they came from, for what is refused.
        recipe, summarise, began: as `training_config`.

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

        def measure(_: str) -> Summary | None:
            if wanted.init_from is not None:
                return None
            with named_after(file):
                return summarise(wanted)

        if recipe is None:
            chosen = recipes.default_recipe(wanted.data, measure)
        else:
            chosen = recipes.recipe(recipe, asked.get("data"), measure)
        base = dump_config(chosen)
        if chosen.packing is not None and chosen.packing.resolutions is not None:
            by_model = recipes.sized_by_data(recipe, base["data"])
            base["packing"] |= _resized_packing(chosen, chosen.packing, wanted, by_model)
        if wanted.init_from is not None:
            # What the checkpoint says of its images and its encoding stays, unless asked to change.
            kept = {key: value for key, value in base["model_options"].items() if key not in ("mean", "std")}
            base |= {"model_options": kept, "encoding": load_model(wanted.init_from).config.encoding}
            base["model"] = None
        by_data = recipes.sized_by_data(recipe, base["data"])
        if by_data and (wanted.init_from or wanted.model):
            # Its size was chosen for the model of the recipe.
            base["resolution"] = None
    # A length that was asked for replaces the recipe's, in whichever unit that is.
    if any(asked.get(name) is not None for name in BUDGETS):
        base |= dict.fromkeys(BUDGETS)
    packing = asked.get("packing")
    if isinstance(packing, Mapping) and "drop" in packing and base["packing"] is not None:
        # Another drop has other fields.
        base["packing"]["drop_options"] = {}
    _drop_leftovers(base, asked)
    mine = merge(base, asked)
    if recipe in recipes.FINE_TUNING and mine["init_from"] is None:
        raise InputError(f"recipe {recipe}: goes on from a trained model (expected --init-from RUN)")
    made = build_config(TrainConfig, mine, where)
    if made.optimizer.ema is None and (asked.get("optimizer") or {}).get("ema_warmup") is False:
        raise InputError("optimizer.ema_warmup False: has no effect with ema None (expected optimizer.ema too)")
    return made


def _drop_leftovers(base: dict[str, Any], asked: Mapping[str, Any]) -> None:
    """Leave out of a recipe what goes with its own task, packing, optimizer or schedule, where another is asked for."""
    if asked.get("task", base["task"]) != base["task"]:
        base |= {"loss": None, "label_smoothing": None, "task_options": {}}
    optimizer, other = base["optimizer"], asked.get("optimizer")
    if isinstance(other, Mapping):
        for choice, fields in (("name", ("betas", "eps", "momentum")), ("schedule", ("timescale",))):
            if other.get(choice, optimizer[choice]) != optimizer[choice]:
                optimizer |= dict.fromkeys(fields)
        if other.get("schedule", optimizer["schedule"]) in ("constant", "rsqrt") and not optimizer["cooldown"]:
            optimizer["final_lr"] = 0.0


def _resized_packing(
    chosen: TrainConfig, packing: PackingConfig, wanted: TrainConfig, by_model: bool
) -> dict[str, Any]:
    """A recipe's sides and tokens in proportion to the resolution and the patches that are asked for.

    Args:
        by_model: another model has its own resolution, not the recipe's.
    """
    was = model_config(chosen.model or DEFAULT_MODEL)
    if wanted.init_from is not None:
        model = load_model(wanted.init_from).config
    else:
        model = model_config(wanted.model or chosen.model or DEFAULT_MODEL)
    before = chosen.resolution or square_side(was)
    own = square_side(model) if by_model and (wanted.init_from or wanted.model) else before
    sides = (wanted.resolution or own) / before
    cells = (sides * was.patch_size / model.patch_size) ** 2
    assert packing.resolutions is not None
    resized: dict[str, Any] = {"resolutions": [max(round(side * sides), 1) for side in packing.resolutions]}
    for name in ("tokens", "most_tokens"):
        if getattr(packing, name) is not None:
            resized[name] = max(round(getattr(packing, name) * cells), 1)
    return resized


def built_model(
    resolved: TrainConfig, source: Source, file: Path | None, device: torch.device, processes: int = 1
) -> Model:
    """Build the model, so that what it refuses is known before anything is written."""
    with named_after(file or Path("train")):
        # Of several patch sizes the smallest takes the most.
        model = min(with_patch_sizes(resolved, model_config_of(resolved, source)), key=lambda one: one.patch_size)
        image_size, batch = largest_pass(resolved, model, source.length("train"), processes)
        # What is computed again is not known before.
        if not resolved.recompute:
            warn_of_memory(
                model,
                image_size,
                warn,
                what=resolved.model or str(resolved.init_from),
                batch=batch,
                dtype=resolved.precision,
                training=True,
                ema=resolved.optimizer.ema is not None,
                sharers=processes if resolved.sharing == "fsdp" else 1,
                device=device,
            )
        built = build_model(resolved, source)
    if resolved.init_from is not None:
        print(describe_init(load_model(resolved.init_from), built, resolved.init_from), file=sys.stderr)
    return built


def largest_pass(
    resolved: TrainConfig, model: ViTConfig, length: int | None, processes: int = 1
) -> tuple[int | tuple[int, int], int]:
    """The images that a process holds at most at once, for its memory: their size in pixels and how many.

    Args:
        length: of the data, whose passes end with the step that they are in; None where it is endless.

    Raises:
        InputError: a pack has no room for a patch.
    """
    packing, parts = resolved.packing, resolved.accumulate * processes
    if packing is None:
        step = min(one for one in (resolved.batch_size, length, resolved.images) if one is not None)
        return model.image_size, -(-step // parts)
    cells = packing.sampler(model.patch_size, model.num_prefix_tokens).max_tokens
    assert cells is not None
    # Of a clip, which is so many patches thick, those of a frame.
    thick = model.grid_of(model.image_size)[0] if model.takes_clips else 1
    cells = max(cells // thick, 1)
    if packing.resolutions is not None:
        cells = min(cells, (packing.resolutions[1] // model.patch_size + 1) ** 2)
    # As a square: what a pass takes hangs on the number of patches.
    side = math.isqrt(cells - 1) + 1
    slots = max(packing.tokens, *(packing.padded or (0,)))
    return side * model.patch_size, -(-slots // (side**2 * thick * parts))
