"""What changes in a run, and how it is kept: the checkpoint, the one before it, and the log."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline import runtime
from sightline.checkpoint import check_state, load_tensors, read_folder, tensor_writer, write_folder
from sightline.data.source import Source
from sightline.errors import InputError, StorageError
from sightline.load import load_model, model_files, read_record
from sightline.models import VisionTransformer
from sightline.training.config import TrainConfig
from sightline.training.course import Position
from sightline.training.ema import Ema
from sightline.training.optim import expected_tensors, load_optimizer_tensors, optimizer_tensors

CHECKPOINT = "checkpoint"
# The checkpoint before the last, while a run is under way.
PREVIOUS = "checkpoint.previous"
LOG = "log.jsonl"
# What may change between a run and its continuation without changing the weights.
_FREE_TO_CHANGE = ("workers", "checkpoint_every")


@dataclass
class RunState:
    """All that changes in a run.

    Attributes:
        position: of a packed run, where its plan goes on from.
    """

    model: VisionTransformer
    optimizer: torch.optim.Optimizer
    ema: Ema | None
    step: int = 0
    seconds: float = 0.0
    position: Position | None = None

    @property
    def names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.model.named_parameters()}


def last_good(out: Path, warn: Callable[[str], None] | None) -> Path:
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


def keep_previous(out: Path) -> None:
    """Keep the checkpoint that is about to be replaced, by links to the same files."""
    if not (out / CHECKPOINT).exists():
        return
    try:
        shutil.rmtree(out / PREVIOUS, ignore_errors=True)
        shutil.copytree(out / CHECKPOINT, out / PREVIOUS, copy_function=os.link)
    except OSError as error:
        raise StorageError(f"{out / PREVIOUS}: cannot be written ({error.strerror or error})") from error


def save_state(state: RunState, config: TrainConfig, source: Source, path: Path, device: torch.device) -> None:
    """Write a checkpoint: the model's folder with the state of its training beside it."""
    tensors = {f"optimizer/{key}": value for key, value in optimizer_tensors(state.optimizer, state.names).items()}
    if state.ema is not None:
        # The model's own file holds the mean, which is what is tested; the weights themselves stand here.
        state.ema.exchange(state.model)
        tensors |= {f"weights/{name}": value for name, value in state.ema.tensors().items()}
    training = {
        "config": dataclasses.asdict(config),
        "task": source.task,
        "step": state.step,
        "course": None if state.position is None else state.position.as_record(),
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


def restore_state(state: RunState, config: TrainConfig, path: Path, warn: Callable[[str], None] | None) -> None:
    """The state of a checkpoint of the same configuration.

    Args:
        warn: called with a line where it was trained with another number of threads, which sum in another order.

    Raises:
        InputError: it is of another configuration, or its state does not fit the model.
    """
    training, files = read_record(path)["training"], read_folder(path)
    if "step" not in training or "training.safetensors" not in files:
        raise InputError(f"--resume: {path}: is a model without the state of its training")
    check_same_run(training.get("config", {}), config, path)
    trained = load_model(path)
    tensors = load_tensors(files["training.safetensors"])
    expected = {f"optimizer/{key}": value for key, value in expected_tensors(state.model).items()}
    if state.ema is not None:
        expected |= {f"weights/{name}": value for name, value in state.model.named_parameters()}
    check_state(expected, tensors, str(files["training.safetensors"]))
    threads = torch.get_num_threads()
    if warn is not None and training.get("threads") != threads:
        warn(f"{path} was trained with {training.get('threads')} threads, this is {threads}: not the same to the bit")
    state.model.load_state_dict(trained.state_dict())
    if state.ema is not None:
        for name, mean in state.ema.mean.items():
            mean.copy_(state.model.get_parameter(name).detach())
            state.model.get_parameter(name).data.copy_(tensors[f"weights/{name}"])
    moments = {key.removeprefix("optimizer/"): value for key, value in tensors.items() if key.startswith("optimizer/")}
    load_optimizer_tensors(state.optimizer, state.names, moments)
    state.step, state.seconds = training["step"], training["seconds"]
    if training.get("course") is not None:
        state.position = Position.of(training["course"])


def check_same_run(saved: Mapping[str, Any], config: TrainConfig, path: Path) -> None:
    """Refuse to continue what another configuration began; names the first key that differs.

    A field that an older version did not know yet has the value that it stood for then: the metadata `before` of the
    field where its default says otherwise, else its default.

    Args:
        saved: the resolved configuration of what is there; config: the resolved one that was asked for.
    """
    for key, there, value in _differences(_completed(saved, config), _plain(config)):
        if key not in _FREE_TO_CHANGE:
            raise InputError(
                f"--resume: {path} was trained with {key} {there!r}, not {value!r} "
                "(expected the same configuration; --overwrite starts anew)"
            )


def _completed(saved: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """`saved` with the fields of `config` that the version which wrote it did not have."""
    completed = dict(saved)
    for field in dataclasses.fields(config):
        inner = getattr(config, field.name)
        if field.name in saved:
            if dataclasses.is_dataclass(inner) and isinstance(saved[field.name], Mapping):
                completed[field.name] = _completed(saved[field.name], inner)
        elif "before" in field.metadata:
            completed[field.name] = _plain(field.metadata["before"])
        elif field.default is not dataclasses.MISSING:
            completed[field.name] = _plain(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            completed[field.name] = _plain(field.default_factory())
    return completed


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value))  # pyright: ignore[reportArgumentType]


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


def open_log(path: Path, steps: int) -> list[dict[str, Any]]:
    """The lines of the steps that the checkpoint holds; later ones belong to a killed sitting."""
    if steps == 0 or not path.exists():
        return []
    return [line for line in read_log(path) if line["step"] <= steps]


def write_log(path: Path, log: list[dict[str, Any]]) -> None:
    """Replace the log whole, so that a kill leaves the old one or the new one."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("".join(json.dumps(line) + "\n" for line in log), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
