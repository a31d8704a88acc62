"""What changes in a run, and how it is kept: the checkpoint, and the one before it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline import runtime
from sightline.checkpoint import (
    check_state,
    folder_exists,
    load_tensors,
    read_folder,
    refuse_foreign,
    tensor_writer,
    write_folder,
)
from sightline.data.fingerprint import Fingerprint
from sightline.data.source import Source
from sightline.encodings.base import without_knobs
from sightline.errors import InputError
from sightline.load import load_model, model_record, model_tensors, read_record
from sightline.models import Model
from sightline.ranks import ALONE, Ranks
from sightline.reading import read_json_lines
from sightline.replacing import previous_of, storage_errors
from sightline.run_files import (
    BEST,
    CHECKPOINT,
    CHECKSUMS,
    LEFT_OUT,
    LOG,
    MODEL,
    PICTURES,
    PREDICTIONS,
    RESULTS,
    TRAINING,
    VALIDATION,
    WEIGHTS,
)
from sightline.sharded import copied, declared_parts, load_parts, part_files, write_together
from sightline.training.config import TrainConfig, renamed
from sightline.training.log import older_log, text_of, unheard
from sightline.training.optim import Ema, expected_tensors, load_optimizer_tensors, optimizer_tensors
from sightline.training.plan import Position
from sightline.training.same_data import data_record

# What may change between a run and its continuation without changing the weights.
_FREE_TO_CHANGE = (
    "accumulate",
    "recompute",
    "compile",
    "sharing",
    "validation",
    "workers",
    "checkpoint_every",
    "skip_unreadable",
)
# Of these groups the order counts too.
_ORDERED = ("augment",)


@dataclass
class RunState:
    """All that changes in a run, beside what it is a run of.

    Attributes:
        config: resolved; source: the data, as its images are shown.
        data: of what it is trained on; minival: digest of what it is validated on, "" where it is on nothing.
        ranks: that train it, of which this process is one.
        seeded: what is left to chance is drawn by the images' seeds; False in runs that older versions began.
        position: of a packed run, where its plan goes on from.
        log: a line a step, as JSON; validation: of its validation curve.
        validated: how much of the run lay behind at the last of these.
    """

    model: Model
    optimizer: torch.optim.Optimizer
    ema: Ema | None
    config: TrainConfig
    source: Source
    data: Fingerprint
    minival: str
    ranks: Ranks = ALONE
    seeded: bool = True
    step: int = 0
    seconds: float = 0.0
    position: Position | None = None
    log: list[str] = field(default_factory=list)
    validation: list[str] = field(default_factory=list)
    validated: float = 0.0

    @property
    def in_parts(self) -> bool:
        """Each rank holds a part of the model."""
        return self.ranks.size > 1 and self.config.sharing == "fsdp"


def has_checkpoint(out: Path) -> bool:
    """Whether there is a checkpoint to go on from, or one that was.

    Raises:
        InputError: a link stands in its place, through which the checkpoint of another run would be replaced.
    """
    _refuse_link(out / CHECKPOINT)
    return folder_exists(out / CHECKPOINT) or folder_exists(previous_of(out / CHECKPOINT))


def _refuse_link(place: Path) -> None:
    if place.is_symlink():
        raise InputError(
            f"{place}: is a link to {os.path.realpath(place)}, which is not this run's to replace; expected a folder "
            "(copy what it leads to)"
        )


def last_good(out: Path, warn: Callable[[str], None] = unheard) -> Path | None:
    """The last checkpoint of a run that is to go on, or the one before it where the last is damaged; None of a new run.

    Args:
        warn: called with a line where it is the one before; also where there is something else in its place.

    Raises:
        InputError: both are damaged, or gone while what a run writes after its first checkpoint is there; or as
            `has_checkpoint`.
    """
    if not has_checkpoint(out):
        for kept in (out / BEST / CHECKSUMS, out / LOG):
            if kept.is_file() and kept.stat().st_size:
                raise InputError(
                    f"--resume: {out} holds {kept.relative_to(out).parts[0]} of a run whose {CHECKPOINT} is gone (put "
                    "it back; --overwrite begins anew)"
                )
        return None
    previous = previous_of(out / CHECKPOINT)
    if previous.is_symlink() or previous.is_file():
        warn(f"{previous}: is a {'link' if previous.is_symlink() else 'file'}; no checkpoint is kept there as a spare")
    try:
        read_folder(out / CHECKPOINT)
    except InputError as error:
        if not folder_exists(previous):
            raise
        try:
            read_folder(previous)
        except InputError as also:
            raise InputError(f"{error}; and {also}") from None
        warn(f"{error}; going on from {previous}")
        return previous
    return out / CHECKPOINT


def drop_previous(out: Path) -> None:
    """Delete the spare of a run that is complete, unless it is all that can be read, or no checkpoint."""
    previous = previous_of(out / CHECKPOINT)
    if previous.is_symlink() or not (previous / CHECKSUMS).exists():
        return
    with contextlib.suppress(InputError):
        read_folder(out / CHECKPOINT)
        shutil.rmtree(previous, ignore_errors=True)


def measured_files(out: Path) -> list[Path]:
    """What was measured of a run, as far as it is there."""
    files = [out / name for name in (RESULTS, PREDICTIONS) if (out / name).exists()]
    return [*files, *sorted((out / PICTURES).glob("*.png"))]


def drop_measured(out: Path, foreign: Collection[Path]) -> None:
    """Delete what was measured of weights that are about to be replaced.

    Args:
        foreign: files of these names that no run wrote, which stay.

    Raises:
        StorageError: one cannot be deleted.
    """
    for file in measured_files(out):
        if file not in foreign:
            with storage_errors(f"{file}: cannot be deleted"):
                file.unlink(missing_ok=True)


def save_state(state: RunState, path: Path) -> None:
    """Write a checkpoint: the model's folder with the state of its training, and its log, beside it; of several ranks
    that hold a model in parts, each calls this and writes its own."""
    data, listing = data_record(state.data, state.minival)
    training = {f"optimizer/{key}": value for key, value in optimizer_tensors(state.optimizer, state.model).items()}
    with tested_weights(state):
        # The model's own file holds the mean, which is what is tested; the weights themselves stand here.
        means = {} if state.ema is None else state.ema.mean
        training |= {f"weights/{name}": value for name, value in means.items()}
        tensors = {WEIGHTS: model_tensors(state.model), TRAINING: {key: copied(one) for key, one in training.items()}}
        record = model_record(state.model, {**_record(state), "data": data})
    found = {} if state.source.allowance is None else state.source.allowance.found
    left_out = [json.dumps([split, *image]) for split, images in found.items() for image in images.items()]
    files = {MODEL: record, LOG: text_of(state.log), VALIDATION: text_of(state.validation)}
    files |= {LEFT_OUT: text_of(left_out)} if left_out else {}
    _write(state, path, {**files, **listing}, tensors, keep_previous=True)


def save_best(state: RunState, path: Path) -> None:
    """Write the model of a run as it is now, without the state of its training; who calls it as of `save_state`."""
    with tested_weights(state):
        files = {MODEL: model_record(state.model, _record(state))}
        tensors = {WEIGHTS: model_tensors(state.model)}
    _write(state, path, files, tensors)


def _write(
    state: RunState,
    path: Path,
    files: Mapping[str, bytes],
    tensors: Mapping[str, Mapping[str, Tensor]],
    *,
    keep_previous: bool = False,
) -> None:
    """A folder of files, and of tensors: in one file each, or in parts where the model is held so."""
    if state.in_parts:
        write_together(path, files, tensors, state.ranks, keep_previous=keep_previous)
    else:
        written = {name: tensor_writer(some) for name, some in tensors.items()}
        write_folder(path, {**written, **files}, keep_previous=keep_previous)


def place_of_best(out: Path, warn: Callable[[str], None]) -> Path | None:
    """Where a run keeps its best model; None where something else stands there, which stays and ends no run.

    Args:
        warn: called with a line then.
    """
    place = out / BEST
    try:
        _refuse_link(place)
        refuse_foreign(place)
    except InputError as error:
        warn(f"{error}; the best model by validation is not kept")
        return None
    return place


@contextlib.contextmanager
def tested_weights(state: RunState) -> Iterator[None]:
    """Inside, the model has the weights that are tested: the running mean where there is one."""
    if state.ema is not None:
        state.ema.exchange(state.model)
    try:
        yield
    finally:
        if state.ema is not None:
            state.ema.exchange(state.model)


def _record(state: RunState) -> dict[str, Any]:
    return {
        "config": dataclasses.asdict(state.config),
        "task": state.source.task,
        "step": state.step,
        "course": None if state.position is None else state.position.as_record(),
        "seconds": state.seconds,
        "validated": state.validated,
        "threads": torch.get_num_threads(),
        "ranks": state.ranks.size,
        "seeded": state.seeded,
        "hardware": runtime.hardware(state.model.anchor.device),
        "commit": runtime.commit(),
        "parameters": sum(parameter.numel() for parameter in state.model.parameters()),
    }


def restore_state(state: RunState, path: Path, warn: Callable[[str], None]) -> None:
    """The state of a checkpoint of the same configuration; what was left out of the data counts on.

    Args:
        warn: called with a line where it was trained with another number of threads, which sum in another order, or
            in bfloat16 by a version that rounded otherwise.

    Raises:
        InputError: it is of another configuration, or its state does not fit the model.
    """
    training, files = read_record(path)["training"], read_folder(path)
    if "step" not in training or not part_files(files, TRAINING):
        raise InputError(f"--resume: {path}: is a model without the state of its training")
    check_same_run(training.get("config", {}), state.config, path)
    tensors = _training_tensors(state, part_files(files, TRAINING))
    moments = {key.removeprefix("optimizer/"): value for key, value in tensors.items() if key.startswith("optimizer/")}
    threads = torch.get_num_threads()
    if training.get("threads") != threads:
        warn(f"{path} was trained with {training.get('threads')} threads, this is {threads}: not the same to the bit")
    if (before := training.get("ranks", 1)) != state.ranks.size:
        warn(f"{path} was trained by {before} ranks, this is {state.ranks.size}: not the same to the bit")
    if state.config.precision == "bfloat16" and "validated" not in training:
        warn(f"{path} was trained by an older version, whose bfloat16 rounds otherwise: not the same to the bit")
    trained = load_model(path)
    if state.in_parts:
        load_parts(part_files(files, WEIGHTS), without_knobs(state.model.state_dict()))
    else:
        state.model.load_state_dict(trained.state_dict())
    if state.ema is not None:
        for name, mean in state.ema.mean.items():
            mean.copy_(state.model.get_parameter(name).detach())
            state.model.get_parameter(name).data.copy_(tensors[f"weights/{name}"])
    load_optimizer_tensors(state.optimizer, state.model, moments)
    state.step, state.seconds = training["step"], training["seconds"]
    state.seeded = training.get("seeded", False)
    if LOG in files:
        state.log = files[LOG].read_text(encoding="utf-8").splitlines()
    else:
        state.log = older_log(path.parent / LOG, state.step)
    if VALIDATION in files:
        state.validation = files[VALIDATION].read_text(encoding="utf-8").splitlines()
        state.validated = training.get("validated", 0.0)
    if state.source.allowance is not None:
        found: dict[str, dict[str, str]] = training.get("left_out", {})  # where an older version kept it
        for _, (split, image, reason) in read_json_lines(files[LEFT_OUT], "an image") if LEFT_OUT in files else ():
            found.setdefault(split, {})[image] = reason
        state.source.allowance.restore(found)
    if training.get("course") is not None:
        state.position = Position.of(training["course"])


def _training_tensors(state: RunState, parts: Sequence[Path]) -> dict[str, Tensor]:
    """What a checkpoint holds beside the model, of which each rank has what it holds of the model."""
    alone = len(parts) == 1 and not state.in_parts
    found = load_tensors(parts[0]) if alone else declared_parts(parts)
    moments = [key.removeprefix("optimizer/") for key in found if key.startswith("optimizer/")]
    expected = {
        f"optimizer/{key}": value
        for key, value in expected_tensors(state.model, state.config.optimizer, moments).items()
    }
    if state.ema is not None:
        expected |= {f"weights/{name}": value for name, value in state.model.named_parameters()}
    check_state(expected, found, str(parts[0]))
    if alone:
        return found
    into = {name: torch.zeros_like(value, requires_grad=False) for name, value in expected.items()}
    load_parts(parts, into)
    return into


def check_same_run(saved: Mapping[str, Any], config: TrainConfig, path: Path) -> None:
    """Refuse to continue what another configuration began; names the first key that differs.

    A field that an older version did not know yet has the value that it stood for then: the metadata `before` of the
    field where its default says otherwise, else its default.

    Args:
        saved: the resolved configuration of what is there; config: the resolved one that was asked for.
    """
    for key, there, value in _differences(_completed(renamed(saved), config), _plain(config)):
        if key.partition(".")[0] not in _FREE_TO_CHANGE:
            raise InputError(
                f"--resume: {path} was trained with {key} {there!r}, not {value!r} "
                "(expected the same configuration; --overwrite starts anew)"
            )


def _completed(saved: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """`saved` with the fields of `config` that the version which wrote it did not have."""
    completed = dict(saved)
    for one in dataclasses.fields(config):
        inner, there = getattr(config, one.name), saved.get(one.name)
        if dataclasses.is_dataclass(inner) and isinstance(there, Mapping):
            completed[one.name] = _completed(there, inner)
        elif one.name not in saved:
            default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
            if (stood_for := one.metadata.get("before", default)) is not dataclasses.MISSING:
                completed[one.name] = _plain(stood_for)
    return completed


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value))  # pyright: ignore[reportArgumentType]


def _differences(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*wanted, *saved)):
        there, value = saved.get(key), wanted.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            yield from ((f"{key}.{inner}", *both) for inner, *both in _differences(there, value))
            if key in _ORDERED and list(there) != list(value):
                yield key, list(there), list(value)
        elif there != value:
            yield key, there, value
