"""A run before its first step: what its configuration leaves open is decided, its data is read, its model built."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.analysis.memory import warn_of_memory
from sightline.attention.cpu import chosen_precision
from sightline.data.augmentations import make_augmentations
from sightline.data.open import open_source
from sightline.data.paired import SegmentationFiles
from sightline.data.source import Source
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.evaluation.measure import EvaluateConfig
from sightline.hub.fine_tune import derive_config, init_model_from
from sightline.hub.load import checksum, load_model
from sightline.io.config import build_config, errors_of_file
from sightline.models import Model, ViTConfig, make_model, model_config
from sightline.tasks.base import check_provided, task_class
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import check_channels
from sightline.training.clips import clip_view
from sightline.training.config import DEFAULT_BATCH_SIZE, DEFAULT_LOSS, DEFAULT_MODEL, TrainConfig
from sightline.training.log import unheard
from sightline.training.plan import EpochPlan, as_trained_on, resolve_length, training_view, with_patch_sizes
from sightline.training.resume_checks import check_same_data, check_same_epochs
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


def open_training_data(config: TrainConfig) -> Source:
    """The data set of a run, as it is shown in training; no image is read yet.

    Raises:
        InputError: it has no training split, or one class alone, or cannot be shown so.
    """
    source = as_trained_on(open_source(config.data), config)
    check_training_data(config, source)
    return source


def check_training_data(config: TrainConfig, source: Source) -> None:
    """Refuse data that a run cannot be trained on, as `open_training_data` does."""
    if "train" not in source.splits:
        source.check("train")
    task = task_class(config.task)
    check_provided(task, source)
    if "label" in task.needs and len(source.classes) < 2:
        raise InputError(f"data {config.data!r}: has {len(source.classes)} class, expected at least 2 to train on")


def tested_splits(test: EvaluateConfig | bool, source: Source) -> tuple[str, ...]:
    """The splits that a run is tested on; none where it is not, or the data has none."""
    if isinstance(test, EvaluateConfig):
        return test.splits
    return tuple(name for name in ("test", "minival") if name in source.splits)[:1] if test else ()


def set_up(
    config: TrainConfig,
    source: Source,
    *,
    device: torch.device,
    last: Path | None = None,
    test: EvaluateConfig | bool = False,
    accept_changed_data: bool = False,
    processes: int = 1,
    file: Path | None = None,
    warn: Callable[[str], None] = unheard,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> TrainSetup:
    """Decide, check and build a run; nothing is written.

    Args:
        config: as it was asked for; source: as `open_training_data` gives it.
        last: the checkpoint that it goes on from, as `last_whole` gives it.
        test: how it will be tested: those images too are looked at now, and not after hours of training.
        processes: how many train it together; file: that it was asked for by, for what is refused.
        progress: called with what is read, how many files of it were, and how many there are.

    Raises:
        InputError: the configuration does not fit the data, or the data is not what it was.
        UnreadableDataError: more images are unreadable than `skip_unreadable`.
    """
    with errors_of_file(file):
        decided = resolve_config(config, source, device, last)
        _warn_of_memory(decided, source, device, processes, warn)
        model = build_model(decided, source)
    for split in dict.fromkeys(("train", *tested_splits(test, source))):
        told = functools.partial(progress, f"reading headers of {split}")
        source, _ = source.check_readable(split, skip_unreadable=config.skip_unreadable, progress=told)
    if isinstance(source, SegmentationFiles) and "pixels" in task_class(config.task).needs:
        source.check_classes(warn)
    if last is not None:
        # What a change of the data means for the length is decided before that is counted.
        told = functools.partial(progress, "comparing files")
        decided = check_same_data(last, source, decided, accept_changed=accept_changed_data, warn=warn, progress=told)
    epochs, decided = decided.epochs, _with_length(decided, source)
    if last is not None and epochs is not None:
        check_same_epochs(last, epochs, decided)
    _loaded.cache_clear()
    source = _as_clips(decided, model.config, source)
    return TrainSetup(dataclasses.replace(decided, init_from=config.init_from), source, last, model)


def _warn_of_memory(
    config: TrainConfig, source: Source, device: torch.device, processes: int, warn: Callable[[str], None]
) -> None:
    # What is computed again is not known before.
    if config.recompute:
        return
    # Of several patch sizes the smallest takes the most.
    model = min(with_patch_sizes(config, model_config_of(config, source)), key=lambda one: one.patch_size)
    size, options = largest_pass(config, model, source.length("train"), processes)
    warn_of_memory(model, size, warn, what=config.model or str(config.init_from), device=device, **options)


def warn_of_mirrors(config: TrainConfig, source: Source, warn: Callable[[str], None]) -> None:
    """Say that images are mirrored where classes, or captions, are told apart by left and right."""
    names = [name.lower() for name in (*source.classes, *source.pixel_classes, *source.object_classes)]
    pairs = [name for name in names if "left" in name and name.replace("left", "right") in names]
    if config.flip and pairs:
        other = pairs[0].replace("left", "right")
        warn(
            f"flip {config.flip:g}: so many training images are mirrored, and the classes {pairs[0]!r} and {other!r} "
            "look alike then (--flip 0 mirrors none)"
        )
    elif config.flip and source.says_sides and "captions" in task_class(config.task).needs:
        said = "so many training images are mirrored, and captions say left or right"
        warn(f"flip {config.flip:g}: {said} (--flip 0 mirrors none)")


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
    task = task_class(config.task)
    if config.mixing is not None and not task.mixes:
        raise InputError(f"mixing: task {config.task} has no targets that can be mixed (expected null)")
    places = [one for one in task.needs if one != "label"]
    for one in make_augmentations(config.augment):
        if places and one.moves_pixels:
            raise InputError(
                f"augment.{one.name}: moves what is seen, and {', '.join(places)} of task {config.task} would not "
                "follow (expected augment without it)"
            )
    check_best(config)
    if config.init_from is not None and last is not None:
        config = dataclasses.replace(config, init_from=str(last))
    options = {**task.model_defaults(source, task_options(config)), **config.model_options}
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
    sampling = _as_clips(config, model_config_of(made, source), source).sampling
    # A length that this data cannot have is refused at once.
    EpochPlan.of(config, source.length("train"))
    settings = {**training_view(config, source), **_loss_settings(config)}
    settings["batch_size"] = None if config.packing else config.batch_size or DEFAULT_BATCH_SIZE
    warms = None if config.optimizer.ema is None else config.optimizer.ema_warmup is not False
    settings["optimizer"] = dataclasses.replace(config.optimizer, ema_warmup=warms)
    frames = None if sampling is None else sampling.count
    return dataclasses.replace(made, precision=precision, frames=frames, **settings)


def _as_clips(config: TrainConfig, model: ViTConfig, source: Source) -> Source:
    packed, stride = config.packing is not None, config.frame_stride
    shown = clip_view(model, source, config.data, frames=config.frames, stride=stride, packed=packed)
    for name in () if model.takes_clips else ("frames", "frame_stride"):
        if (value := getattr(config, name)) is not None:
            expected = "expected none, or model_options.embedder tubelets"
            raise InputError(f"{name} {value}: embedder {model.embedder!r} cuts images ({expected})", field=name)
    places = [one for one in task_class(config.task).needs if one != "label"]
    if model.takes_clips and places:
        raise InputError(
            f"task {config.task}: says {' and '.join(places)} of an image, and embedder {model.embedder!r} cuts clips "
            "(expected task classification, or an embedder of images)"
        )
    return shown


def _with_length(config: TrainConfig, source: Source) -> TrainConfig:
    """The configuration with its length in images.

    Raises:
        InputError: the run would be over before it is warm, or cooling down from there.
    """
    if config.packing is not None and (config.tokens is not None or config.flops is not None):
        # How many images that is, only the packing knows.
        return config
    length = resolve_length(config, model_config_of(config, source), source.length("train"))
    spans = {name: getattr(config.optimizer, name) for name in ("warmup", "cooldown")}
    taken = sum(length.steps * span if isinstance(span, float) else span for span in spans.values())
    for name, span in spans.items():
        if config.packing is None and isinstance(span, int) and taken > length.steps:
            raise InputError(
                f"optimizer.{name} {span}: is more than this run's {length.steps} steps leave "
                "(expected fewer, or a fraction of the run, as 0.1)"
            )
    images = length.images
    every = config.checkpoint_every or max(images // config.checkpoints, config.batch_size or DEFAULT_BATCH_SIZE)
    return dataclasses.replace(config, images=images, epochs=None, tokens=None, flops=None, checkpoint_every=every)


def square_side(config: ViTConfig) -> int:
    """The side in pixels of the square that has as many patches as a model's images, or about as many: training images
    are square."""
    height, width = Grid.checked(config.image_size)
    if height == width:
        return height
    return max(1, round(math.sqrt(config.grid_of((height, width)).cells))) * config.patch_size


def largest_pass(
    config: TrainConfig, model: ViTConfig, length: int | None, processes: int = 1
) -> tuple[int | tuple[int, int], dict[str, Any]]:
    """What a process of a run holds at most at once: the size of its images in pixels, and the options of
    `estimate_memory`.

    Args:
        config: resolved.
        length: of the data, whose passes end with the step that they are in; None where it is endless.

    Raises:
        InputError: a pack has no room for a patch.
    """
    packing, parts = config.packing, config.accumulate * processes
    options: dict[str, Any] = {"dtype": config.precision, "training": True, "ema": config.optimizer.ema is not None}
    options["sharers"] = processes if config.sharing == "fsdp" else 1
    if packing is None:
        step = min(one for one in (config.batch_size, length, config.images) if one is not None)
        return model.image_size, {"batch": -(-step // parts), **options}
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
    return side * model.patch_size, {"batch": -(-slots // (side**2 * thick * parts)), **options}


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
    options = {"task": config.task, **said, **config.model_options, "image_size": config.resolution}
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
    with_patch_sizes(config, model.config)
    # Said before the first step: a schedule may drop none for long.
    parts = {f"head {model.config.head}": model.head, f"embedder {model.patch_embed.name}": model.patch_embed}
    for name, part in {**parts, f"architecture {model.name}": model}.items():
        drop = None if config.packing is None else config.packing.drop
        if drop is not None and not getattr(part, "supports_token_dropping", True):
            raise InputError(f"packing.drop {drop}: {name} takes whole images (expected null)", field="packing.drop")
    # What the task says against the model or its options is said before anything is written.
    task_class(config.task)(model.config, task_options(config))
    return model
