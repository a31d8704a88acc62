"""A run before its first step: opened, resolved, compared with what it goes on from, and built, once."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline import runtime
from sightline.checks import configure
from sightline.data.source import Source
from sightline.fine_tune import begin_with, begun_config
from sightline.grid import Grid
from sightline.load import load_model, seal
from sightline.models import Model, ViTConfig, make_model, model_config
from sightline.tasks.base import task_class
from sightline.training.config import DEFAULT_MODEL, TrainConfig
from sightline.training.plan import planned_length
from sightline.training.same_data import check_same_data
from sightline.training.state import going_on, has_checkpoint, last_good


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to be trained.

    Attributes:
        config: resolved, as it is saved.
        source: the data set, as its images are shown.
        last: the checkpoint that it goes on from, None for a new one.
        model: with its first weights; those of `last` are read later.
    """

    config: TrainConfig
    source: Source
    last: Path | None
    model: Model


def prepare(
    asked: TrainConfig,
    out: Path,
    source: Source,
    device: torch.device,
    *,
    resume: bool = False,
    accept_changed_data: bool = False,
    model: Model | None = None,
    warn: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Prepared:
    """Prepare a run in the folder `out`.

    Args:
        source: as `open_training_data` gives it, its headers read.
        resume, accept_changed_data, warn: as `train`.
        model: of the run, where the caller has built it already.
        progress: as `check_same_data`.

    Raises:
        InputError: the configuration, the data, or what is in `out`, is wrong.
    """
    last = last_good(out, warn) if resume and has_checkpoint(out, resume=True) else None
    if last is not None:
        # What a change of the data means for the configuration is decided before the configurations are compared.
        asked = check_same_data(last, source, asked, accept_changed=accept_changed_data, warn=warn, progress=progress)
    own = resolve(going_on(asked, last), source, device)
    model = model or build_model(own, source)
    _loaded.cache_clear()
    return Prepared(dataclasses.replace(own, init_from=asked.init_from), source, last, model)


def resolve(config: TrainConfig, source: Source, device: torch.device) -> TrainConfig:
    """The configuration with everything that was left open decided, so that it reproduces the run anywhere."""
    runtime.check_workers(config.workers)
    task = task_class(config.task)
    options = {**task.model_defaults(source, task_options(config)), **config.model_options}
    name = None if config.init_from else config.model or DEFAULT_MODEL
    resolution = config.resolution or _square(model_config(name) if name else _foundation(config).config)
    config = dataclasses.replace(
        config,
        model=name,
        model_options=options,
        resolution=resolution,
        precision=runtime.chosen_precision(config.precision, device),
    )
    if config.packing is not None and (config.tokens is not None or config.flops is not None):
        # How many images that is, only the packing knows.
        return config
    images = planned_length(config, vit_config(config, source), source.length("train")).images
    every = config.checkpoint_every or max(images // 20, config.batch_size)
    return dataclasses.replace(config, images=images, epochs=None, tokens=None, flops=None, checkpoint_every=every)


def _square(config: ViTConfig) -> int:
    """The side in pixels of the square that has as many patches as a model's images, or about as many: training images
    are square."""
    height, width = Grid.checked(config.image_size)
    return (
        height
        if height == width
        else max(1, round(math.sqrt(config.grid_of((height, width)).cells))) * config.patch_size
    )


def vit_config(config: TrainConfig, source: Source) -> ViTConfig:
    """What the model of a resolved configuration is made of."""
    options = _model_options(config, source)
    if config.init_from is not None:
        return begun_config(_foundation(config).config, **options)
    return model_config(config.model or DEFAULT_MODEL, **options)


def _model_options(config: TrainConfig, source: Source) -> dict[str, Any]:
    task = task_class(config.task)
    options = {"task": config.task, **task.model_options(source, task_options(config)), **config.model_options}
    options["image_size"] = config.resolution
    if config.init_from is None:
        return {**options, **_encoding(config)}
    began = _foundation(config).config
    if config.encoding != began.encoding or config.encoding_options:
        options |= _encoding(config)
    return options


def task_options(config: TrainConfig) -> Any:
    """What the task of a run is configured with: the loss stands beside it, since most have one."""
    kind = task_class(config.task).Options
    own = {field.name for field in dataclasses.fields(kind)}
    shared = {"loss": config.loss, "label_smoothing": config.label_smoothing}
    given = {name: value for name, value in shared.items() if name in own} | config.task_options
    return configure(kind, given, "task_options")


def _encoding(config: TrainConfig) -> dict[str, Any]:
    return {"encoding": config.encoding, "encoding_options": config.encoding_options}


def _foundation(config: TrainConfig) -> Model:
    """The model that a run begins with."""
    assert config.init_from is not None
    return _loaded(config.init_from, seal(config.init_from))


@functools.lru_cache(maxsize=1)
def _loaded(source: str, written: str) -> Model:
    """A run asks for it a few times before it begins; `written` tells a folder that was replaced from its old self."""
    return load_model(source)


def build_model(config: TrainConfig, source: Source) -> Model:
    """The model of a resolved configuration with its first weights, which the seed decides."""
    torch.default_generator.manual_seed(config.seed)
    if config.init_from is not None:
        return begin_with(_foundation(config), config.init_from, **_model_options(config, source))
    return make_model(vit_config(config, source))
