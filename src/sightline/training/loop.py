"""The loop: one process, resumable anywhere, the same weights each time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline import runtime
from sightline.checkpoint import folder_exists, load_tensors, read_folder, tensor_writer, write_folder
from sightline.data.discovery import open_source
from sightline.data.loader import Batch, batches, epoch_order
from sightline.data.source import Source, Unreadable
from sightline.errors import InputError, NonFiniteError, StorageError
from sightline.load import load_model, model_files, read_record
from sightline.models import VisionTransformer, create_model, model_config
from sightline.tasks.classification import classification_loss, to_model_input
from sightline.training.config import TrainConfig
from sightline.training.ema import Ema
from sightline.training.optim import load_optimizer_tensors, make_optimizer, optimizer_tensors
from sightline.training.schedule import Plan, learning_rate

CHECKPOINT = "checkpoint"
# The checkpoint before the last, while a run is under way.
PREVIOUS = "checkpoint.previous"
LOG = "log.jsonl"
# What may change between a run and its continuation without changing the weights.
_FREE_TO_CHANGE = ("workers", "checkpoint_every")
# Batches of endless data that are planned at once.
_AHEAD = 4096


@dataclass(frozen=True)
class Progress:
    """Where a run is, after a step.

    `images` and `total` count training images, `loss` is the step's, `seconds` of training so far, earlier
    sittings included.
    """

    step: int
    steps: int
    images: int
    total: int
    loss: float
    seconds: float


@dataclass
class _State:
    """All that changes in a run."""

    model: VisionTransformer
    optimizer: torch.optim.Optimizer
    ema: Ema | None
    step: int = 0
    seconds: float = 0.0

    @property
    def names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.model.named_parameters()}


def resolve(config: TrainConfig, source: Source, device: torch.device) -> TrainConfig:
    """The configuration with everything that was left open decided, so that it reproduces the run anywhere."""
    options = dict(config.model_options)
    if config.loss == "bce" and "head_bias" not in options:
        # With every class at 1 / classes from the start, the first steps are not spent on the prior.
        options["head_bias"] = -math.log(max(len(source.classes) - 1, 1))
    resolution = config.resolution or model_config(config.model).image_size
    plan = Plan.of(config, source.length("train"))
    every = config.checkpoint_every or max(plan.images // 20, config.batch_size)
    return dataclasses.replace(
        config,
        model_options=options,
        resolution=resolution,
        images=plan.images,
        epochs=None,
        precision=runtime.default_precision(device) if config.precision == "auto" else config.precision,
        checkpoint_every=every,
    )


def build_model(config: TrainConfig, source: Source) -> VisionTransformer:
    """The model of a resolved configuration with its first weights, which the seed decides."""
    torch.manual_seed(config.seed)
    return create_model(
        config.model,
        encoding=config.encoding,
        encoding_options=config.encoding_options,
        num_classes=len(source.classes),
        class_names=tuple(source.classes),
        image_size=config.resolution,
        **config.model_options,
    )


def open_training_data(
    config: TrainConfig,
    progress: Callable[[int, int], None] | None = None,
    left_out: Callable[[Unreadable], None] | None = None,
) -> Source:
    """The data set of a run, checked before anything is written.

    Args:
        progress: called with (images read, images in all).
        left_out: called with each image that cannot be read and is left out.

    Raises:
        InputError: it has no training split, or one class alone.
        UnreadableDataError: more images are unreadable than `max_unreadable`.
    """
    source = open_source(config.data)
    if "train" not in source.splits:
        raise InputError(f"data {config.data!r}: has no split 'train' (has: {', '.join(source.splits)})")
    if len(source.classes) < 2:
        raise InputError(f"data {config.data!r}: has {len(source.classes)} class, expected at least 2 to train on")
    source, unreadable = source.check_readable("train", max_unreadable=config.max_unreadable, progress=progress)
    for image in unreadable:
        if left_out is not None:
            left_out(image)
    return source


def train(
    config: TrainConfig,
    out: str | Path,
    *,
    source: Source | None = None,
    device: str = "auto",
    resume: bool = False,
    observe: Callable[[Progress], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> VisionTransformer:
    """Train a model and leave its checkpoint in `out/checkpoint`, and a line a step in `out/log.jsonl`.

    Given the same configuration, machine, versions and threads, the weights are the same bit for bit, also when the
    run was killed and resumed.

    Args:
        config: of the run; what it leaves open is decided by `resolve`.
        out: the folder of the run; `resume` continues from its last checkpoint, if it has one.
        source: the data set, where the caller has opened and checked it already.
        observe: called after each step.
        warn: called with a line where the last checkpoint is damaged and the one before it is used.

    Returns:
        The trained model, in evaluation mode.

    Raises:
        InputError: the configuration, or what is in `out`, is wrong.
        NonFiniteError: the loss or the gradient is not finite; raised before the step is taken.
        StorageError: a checkpoint cannot be written; the last one still loads.
    """
    where = runtime.resolve_device(device)
    source = open_training_data(config) if source is None else source
    config = resolve(config, source, where)
    plan = Plan.of(config, source.length("train"))
    out = Path(out)
    with _deterministic():
        state = _first_state(config, source, where)
        if resume and folder_exists(out / CHECKPOINT):
            _restore(state, config, _last_good(out, warn))
        log = _open_log(out / LOG, state.step)
        started, before = time.perf_counter(), state.seconds
        for batch in _batches(config, plan, source, state.step):
            rate = learning_rate(state.step, plan.steps, config.optimizer.lr, config.optimizer.warmup)
            loss = _take_step(state, batch, config, rate, where, plan)
            state.step += 1
            state.seconds = before + time.perf_counter() - started
            images = plan.images_seen(state.step)
            log.append({"step": state.step, "images": images, "loss": loss, "lr": rate})
            last = state.step == plan.steps
            if last or images // config.checkpoint_every != plan.images_seen(state.step - 1) // config.checkpoint_every:  # type: ignore[operator]
                _check_weights(state, plan)
                _keep_previous(out)
                _write_log(out / LOG, log)
                _save(state, config, source, out / CHECKPOINT, where)
            if observe is not None:
                observe(Progress(state.step, plan.steps, images, plan.images, loss, state.seconds))
    shutil.rmtree(out / PREVIOUS, ignore_errors=True)
    if state.ema is not None:
        state.ema.exchange(state.model)
    return state.model.eval()


def _last_good(out: Path, warn: Callable[[str], None] | None) -> Path:
    """The last checkpoint, or the one before it where the last is damaged; raises InputError where both are."""
    try:
        read_folder(out / CHECKPOINT)
    except InputError as error:
        if not (out / PREVIOUS).exists():
            raise
        read_folder(out / PREVIOUS)
        if warn is not None:
            warn(f"{error}; going on from {out / PREVIOUS}")
        return out / PREVIOUS
    return out / CHECKPOINT


def _keep_previous(out: Path) -> None:
    """Keep the checkpoint that is about to be replaced, by links to the same files."""
    if not (out / CHECKPOINT).exists():
        return
    try:
        shutil.rmtree(out / PREVIOUS, ignore_errors=True)
        shutil.copytree(out / CHECKPOINT, out / PREVIOUS, copy_function=os.link)
    except OSError as error:
        raise StorageError(f"{out / PREVIOUS}: cannot be written ({error.strerror or error})") from error


def _first_state(config: TrainConfig, source: Source, device: torch.device) -> _State:
    model = build_model(config, source).to(device).train()
    ema = Ema(model, config.optimizer.ema) if config.optimizer.ema is not None else None
    return _State(model, make_optimizer(model, config.optimizer), ema)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    """Deterministic kernels, and the global random state as it was afterwards."""
    was = torch.are_deterministic_algorithms_enabled()
    kept = torch.get_rng_state()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was)
        torch.set_rng_state(kept)


def _batches(config: TrainConfig, plan: Plan, source: Source, first: int) -> Iterator[Batch]:
    """The batches of steps `first` and later, by seed, epoch and position alone."""
    side = (config.resolution, config.resolution)
    step = first
    while step < plan.steps:
        epoch, inside = plan.locate(step)
        count, start = plan.epoch_images(epoch), inside * config.batch_size
        if plan.length is None:
            order = np.arange(start, min(start + _AHEAD * config.batch_size, count))
        else:
            order = epoch_order(plan.length, config.seed, epoch)[start:count]
        for batch in batches(
            source,
            "train",
            indices=order,
            image_size=side,  # type: ignore[arg-type]
            batch_size=config.batch_size,
            seed=config.seed,
            epoch=epoch,
            workers=config.workers,
        ):
            yield batch
            step += 1


def _take_step(
    state: _State, batch: Batch, config: TrainConfig, rate: float, device: torch.device, plan: Plan
) -> float:
    model, optimizer = state.model, state.optimizer
    # Drop path draws from the global generator: seeded by the step, so that a resumed run draws the same.
    torch.manual_seed((config.seed * 2**32 + state.step) % 2**63)
    images = to_model_input(batch.images, model.config.mean, model.config.std, device)
    with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
        logits = model(images)
    loss = classification_loss(logits, batch.labels.to(device), config.loss, config.label_smoothing)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    limit = config.optimizer.clip if config.optimizer.clip is not None else math.inf
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    value = float(loss.detach())
    if not (math.isfinite(value) and math.isfinite(float(norm))):
        epoch, _ = plan.locate(state.step)
        ids = ", ".join(str(index) for index in batch.indices.tolist()[:8])
        raise NonFiniteError(
            f"step {state.step + 1} of epoch {epoch} stopped before the update: loss {value}, gradient norm "
            f"{float(norm)}, images {ids}{', ...' if len(batch.indices) > 8 else ''} (try a lower optimizer.lr)"
        )
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    if state.ema is not None:
        state.ema.update(model)
    return value


def _check_weights(state: _State, plan: Plan) -> None:
    """Refuse weights that an update with a finite gradient made infinite: a rate beyond float32 does that."""
    if not all(bool(parameter.isfinite().all()) for parameter in state.model.parameters()):
        epoch, _ = plan.locate(state.step - 1)
        raise NonFiniteError(
            f"step {state.step} of epoch {epoch}: the update left weights that are not finite; they are not saved "
            "(try a lower optimizer.lr)"
        )


def _save(state: _State, config: TrainConfig, source: Source, path: Path, device: torch.device) -> None:
    tensors = {f"optimizer/{key}": value for key, value in optimizer_tensors(state.optimizer, state.names).items()}
    if state.ema is not None:
        # The model's own file holds the mean, which is what is tested; the weights themselves stand here.
        state.ema.exchange(state.model)
        tensors |= {f"weights/{name}": value for name, value in state.ema.tensors().items()}
    training = {
        "config": dataclasses.asdict(config),
        "task": source.task,
        "step": state.step,
        "seconds": state.seconds,
        "threads": torch.get_num_threads(),
        "hardware": runtime.hardware(device),
        "commit": runtime.commit(),
        "parameters": sum(parameter.numel() for parameter in state.model.parameters()),
    }
    files = model_files(state.model, training)
    plain = {key: value.detach().cpu().clone() for key, value in tensors.items()}
    if state.ema is not None:
        state.ema.exchange(state.model)
    write_folder(path, {**files, "training.safetensors": tensor_writer(plain)})


def _restore(state: _State, config: TrainConfig, path: Path) -> None:
    """The state of a checkpoint of the same configuration."""
    training, files = read_record(path)["training"], read_folder(path)
    if "step" not in training or "training.safetensors" not in files:
        raise InputError(f"--resume: {path}: is a model without the state of its training")
    check_same_run(training.get("config", {}), config, path)
    trained = load_model(path)
    tensors = load_tensors(files["training.safetensors"])
    state.model.load_state_dict(trained.state_dict())
    if state.ema is not None:
        for name, mean in state.ema.mean.items():
            mean.copy_(state.model.get_parameter(name).detach())
            state.model.get_parameter(name).data.copy_(tensors[f"weights/{name}"])
    moments = {key.removeprefix("optimizer/"): value for key, value in tensors.items() if key.startswith("optimizer/")}
    load_optimizer_tensors(state.optimizer, state.names, moments)
    state.step, state.seconds = training["step"], training["seconds"]


def check_same_run(saved: Mapping[str, Any], config: TrainConfig, path: Path) -> None:
    """Refuse to continue what another configuration began; names the first key that differs.

    Args:
        saved: the resolved configuration of what is there; config: the resolved one that was asked for.
    """
    wanted = json.loads(json.dumps(dataclasses.asdict(config)))
    for key, there, value in _differences(saved, wanted):
        if key not in _FREE_TO_CHANGE:
            raise InputError(
                f"--resume: {path} was trained with {key} {there!r}, not {value!r} "
                "(expected the same configuration; --overwrite starts anew)"
            )


def _differences(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*wanted, *saved)):
        there, value = saved.get(key), wanted.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            yield from ((f"{key}.{inner}", *both) for inner, *both in _differences(there, value))
        elif there != value:
            yield key, there, value


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's log.

    Raises:
        InputError: it cannot be read, or is damaged.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not all(isinstance(line, dict) and {"step", "images", "loss"} <= set(line) for line in lines):
            raise ValueError("a line is no record of a step")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as the log of a run ({error})") from None
    return lines


def _open_log(path: Path, steps: int) -> list[dict[str, Any]]:
    """The lines of the steps that the checkpoint holds; later ones belong to a killed sitting."""
    if steps == 0 or not path.exists():
        return []
    return [line for line in read_log(path) if line["step"] <= steps]


def _write_log(path: Path, log: list[dict[str, Any]]) -> None:
    """Replace the log whole, so that a kill leaves the old one or the new one."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("".join(json.dumps(line) + "\n" for line in log), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error


__all__ = [
    "CHECKPOINT",
    "LOG",
    "Progress",
    "build_model",
    "check_same_run",
    "open_training_data",
    "read_log",
    "resolve",
    "train",
]
