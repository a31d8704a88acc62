"""A run before its first step: decided, built, and compared with what it goes on from, each once."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.attention.cpu import chosen_precision
from sightline.data.augmentations import make_augmentations
from sightline.data.paired import SegmentationFiles
from sightline.data.source import Source
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.hub.fine_tune import derive_config, init_model_from
from sightline.hub.load import checksum, load_model
from sightline.io.config import build_config
from sightline.models import Model, ViTConfig, make_model, model_config
from sightline.tasks.base import task_class
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import check_channels
from sightline.training.clips import decided_frames, showing_frames
from sightline.training.config import DEFAULT_BATCH_SIZE, DEFAULT_LOSS, DEFAULT_MODEL, OptimizerConfig, TrainConfig
from sightline.training.log import unheard
from sightline.training.plan import EpochPlan, resolve_length, training_view, with_patch_sizes
from sightline.training.same_data import check_same_data
from sightline.training.validation import check_best


@dataclass(frozen=True)
class TrainSetup:
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


def set_up(
    decided: TrainConfig,
    source: Source,
    model: Model,
    last: Path | None,
    *,
    init_from: str | None,
    accept_changed_data: bool = False,
    warn: Callable[[str], None] = unheard,
    progress: Callable[[int, int], None] | None = None,
) -> TrainSetup:
    """Prepare a run that is decided and built, as soon as the headers of its data are read.

    Args:
        decided: as `decide` gives it; model: as `build_model`.
        source: as `open_training_data` gives it, its headers read.
        last: as `last_whole` gives it.
        init_from: of the run as it was asked for.
        accept_changed_data, warn: as `train`.
        progress: as `check_same_data`.

    Raises:
        InputError: the data is not what it was.
    """
    if isinstance(source, SegmentationFiles) and "pixels" in task_class(decided.task).needs:
        source.check_classes(warn)
    if last is not None:
        # What a change of the data means for the length is decided before that is counted.
        decided = check_same_data(
            last, source, decided, accept_changed=accept_changed_data, warn=warn, progress=progress
        )
    own = _with_length(decided, source)
    _loaded.cache_clear()
    source = showing_frames(source, own.frames, own.frame_stride, packed=own.packing is not None)
    return TrainSetup(dataclasses.replace(own, init_from=init_from), source, last, model)


def warn_of_mirrors(config: TrainConfig, source: Source, warn: Callable[[str], None]) -> None:
    """Say that images are mirrored where classes are told apart by left and right."""
    names = [name.lower() for name in (*source.classes, *source.pixel_classes, *source.object_classes)]
    pairs = [name for name in names if "left" in name and name.replace("left", "right") in names]
    if config.flip and pairs:
        other = pairs[0].replace("left", "right")
        warn(
            f"flip {config.flip:g}: so many training images are mirrored, and the classes {pairs[0]!r} and {other!r} "
            "look alike then (--set flip=0 mirrors none)"
        )


def resolve(config: TrainConfig, source: Source, device: torch.device) -> TrainConfig:
    """The configuration with everything that was left open decided, so that it reproduces the run anywhere."""
    return _with_length(resolve_config(config, source, device), source)


def resolve_config(config: TrainConfig, source: Source, device: torch.device, last: Path | None = None) -> TrainConfig:
    """The configuration with everything decided that its model hangs on: all but its length, which is counted when
    the headers of the data are read.

    Args:
        last: the checkpoint that the run goes on from; its model begins with that, since what it first began with may
            be gone, or another by now.
    """
    machine.check_workers(config.workers)
    if config.mixing is not None and not task_class(config.task).mixes:
        raise InputError(f"mixing: task {config.task} has no targets that can be mixed (expected null)")
    _check_augment(config)
    check_best(config)
    if config.init_from is not None and last is not None:
        config = dataclasses.replace(config, init_from=str(last))
    options = {**task_class(config.task).model_defaults(source, task_options(config)), **config.model_options}
    name = None if config.init_from else config.model or DEFAULT_MODEL
    resolution = config.resolution or square_side(model_config(name) if name else _foundation(config).config)
    if config.progressive and config.progressive[-1] >= resolution:
        raise InputError(
            f"progressive {list(config.progressive)}: ends at {config.progressive[-1]} px, expected sides below the "
            f"resolution of {resolution}, which comes after them"
        )
    precision = chosen_precision(config.precision, device)
    made = dataclasses.replace(config, model=name, model_options=options, resolution=resolution, frames=None)
    # Without the frames that were asked for, which a model of images would refuse in words of its own.
    frames = decided_frames(config, model_config_of(made, source), source)
    # A length that this data cannot have is refused at once.
    EpochPlan.of(config, source.length("train"))
    settings = {**training_view(config, source), **_loss_settings(config)}
    settings["batch_size"] = None if config.packing else config.batch_size or DEFAULT_BATCH_SIZE
    warms = None if config.optimizer.ema is None else config.optimizer.ema_warmup is not False
    settings["optimizer"] = dataclasses.replace(config.optimizer, ema_warmup=warms)
    return dataclasses.replace(made, precision=precision, frames=frames, **settings)


def _check_augment(config: TrainConfig) -> None:
    """Refuse to move what a task says the places of."""
    places = [one for one in task_class(config.task).needs if one != "label"]
    for one in make_augmentations(config.augment):
        if places and one.moves_pixels:
            raise InputError(
                f"augment.{one.name}: moves what is seen, and {', '.join(places)} of task {config.task} would not "
                "follow (expected augment without it)"
            )


def _with_length(config: TrainConfig, source: Source) -> TrainConfig:
    if config.packing is not None and (config.tokens is not None or config.flops is not None):
        # How many images that is, only the packing knows.
        return config
    length = resolve_length(config, model_config_of(config, source), source.length("train"))
    if config.packing is None:
        _check_warm_up(config.optimizer, length.steps)
    images = length.images
    every = config.checkpoint_every or max(images // config.checkpoints, config.batch_size or DEFAULT_BATCH_SIZE)
    return dataclasses.replace(config, images=images, epochs=None, tokens=None, flops=None, checkpoint_every=every)


def _check_warm_up(config: OptimizerConfig, steps: int) -> None:
    """Refuse a run that would be over before it is warm, or cooling down from there."""
    there = {name: getattr(config, name) for name in ("warmup", "cooldown")}
    taken = sum(steps * span if isinstance(span, float) else span for span in there.values())
    for name, span in there.items():
        if isinstance(span, int) and taken > steps:
            raise InputError(
                f"optimizer.{name} {span}: is more than this run's {steps} steps leave "
                "(expected fewer, or a fraction of the run, as 0.1)"
            )


def square_side(config: ViTConfig) -> int:
    """The side in pixels of the square that has as many patches as a model's images, or about as many: training images
    are square."""
    height, width = Grid.checked(config.image_size)
    if height == width:
        return height
    return max(1, round(math.sqrt(config.grid_of((height, width)).cells))) * config.patch_size


def model_config_of(config: TrainConfig, source: Source) -> ViTConfig:
    """What the model of a resolved configuration is made of."""
    options = _model_options(config, source)
    if config.init_from is not None:
        made = derive_config(_foundation(config).config, **options)
    else:
        made = model_config(config.model or DEFAULT_MODEL, **options)
    check_channels(made.channels)
    return made


def _model_options(config: TrainConfig, source: Source) -> dict[str, Any]:
    task = task_class(config.task)
    said = task.model_options(source, task_options(config))
    if "head" in said and "head" in config.model_options:
        raise InputError("model_options.head: is decided by 'task_options.head' of the run")
    options = {"task": config.task, **said, **config.model_options}
    options["image_size"] = config.resolution
    if config.frames is not None:
        options["clip_frames"] = config.frames
    began = None if config.init_from is None else _foundation(config).config.encoding
    if config.encoding != began or config.encoding_options:
        options |= {"encoding": config.encoding, "encoding_options": config.encoding_options}
    return options


def task_options(config: TrainConfig) -> Any:
    """What the task of a run is configured with: the loss stands beside it, since most have one."""
    kind = task_class(config.task).Options
    own = {field.name for field in dataclasses.fields(kind)}
    shared = {name: value for name, value in _loss_settings(config).items() if name in own}
    return build_config(kind, shared | config.task_options, "task_options")


def _loss_settings(config: TrainConfig) -> dict[str, Any]:
    """`loss` and `label_smoothing`, decided; None where the task has a loss of its own.

    Raises:
        InputError: one is given to such a task.
    """
    own = {field.name for field in dataclasses.fields(task_class(config.task).Options)}
    settings: dict[str, Any] = {}
    for name, default in (("loss", DEFAULT_LOSS), ("label_smoothing", 0.0)):
        value = getattr(config, name)
        if value is not None and name not in own:
            raise InputError(f"{name} {value}: task {config.task} has a loss of its own (expected null)")
        settings[name] = default if value is None and name in own else value
    return settings


def _foundation(config: TrainConfig) -> Model:
    """The model that a run begins with."""
    assert config.init_from is not None
    return _loaded(config.init_from, checksum(config.init_from))


@functools.lru_cache(maxsize=1)
def _loaded(source: str, written: str) -> Model:
    """A run asks for it a few times before it begins; `written` tells a folder that was replaced from its old self."""
    return load_model(source)


def build_model(config: TrainConfig, source: Source) -> Model:
    """The model of a resolved configuration with its first weights, which the seed decides.

    Raises:
        InputError: tokens are dropped, and its head or its embedder needs them all.
    """
    torch.default_generator.manual_seed(config.seed)
    if config.init_from is not None:
        model = init_model_from(_foundation(config), config.init_from, **_model_options(config, source))
        unlearnt = [name for name in model.reinitialized if name.startswith("encoding.")]
        if config.frozen and unlearnt:
            raise InputError(f"frozen true: {unlearnt[0]} is new, and would never learn (expected its own encoding)")
    else:
        model = make_model(model_config_of(config, source))
    # Said before the first step: a schedule may drop none for long.
    drop = None if config.packing is None else config.packing.drop
    if drop is not None and not getattr(model.head, "supports_token_dropping", True):
        raise InputError(f"packing.drop {drop}: head {model.config.head} takes whole images (expected null)")
    embedder = type(model.patch_embed)
    if drop is not None and not embedder.supports_token_dropping:
        raise InputError(f"packing.drop {drop}: embedder {embedder.name} takes whole images (expected null)")
    with_patch_sizes(config, model.config)
    if drop is not None and not model.supports_token_dropping:
        raise InputError(f"packing.drop {drop}: architecture {model.name} takes whole images (expected null)")
    # What the task says against the model or its options is said before anything is written.
    task_class(config.task)(model.config, task_options(config))
    return model
