"""What changes in a run: copied for a checkpoint, and restored from one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline.data.fingerprint import Fingerprint
from sightline.data.source import Source
from sightline.distributed import machine
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.hub.load import config_record, load_model, model_tensors
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.read import read_jsonl
from sightline.io.run_files import LEFT_OUT, LOG, TRAINING, VALIDATION, WEIGHTS
from sightline.io.sharded import read_tensors, shard_files, tensor_shapes
from sightline.io.tensors import check_state, load_tensors
from sightline.models import Model
from sightline.training.config import TrainConfig
from sightline.training.log import text_of
from sightline.training.optim import Ema, expected_tensors, load_optimizer_tensors, optimizer_tensors
from sightline.training.plan import DataState
from sightline.training.same_data import data_record
from sightline.training.same_run import check_same_run, training_record
from sightline.training.snapshot import Memory, Snapshot


@dataclass
class TrainState:
    """All that changes in a run, beside what it is a run of.

    Attributes:
        config: resolved; source: the data, as its images are shown.
        data: of what it is trained on; minival: digest of what it is validated on, "" where it is on nothing.
        ranks: that train it, of which this process is one.
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
    ranks: Ranks = SINGLE_RANK
    step: int = 0
    seconds: float = 0.0
    position: DataState | None = None
    log: list[str] = field(default_factory=list)
    validation: list[str] = field(default_factory=list)
    validated: float = 0.0

    @property
    def sharded(self) -> bool:
        """Each rank holds a part of the model."""
        return self.ranks.size > 1 and self.config.sharing == "fsdp"

    @functools.cached_property
    def data_said(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """As `data_record`, once: the names of a million files take a second."""
        return data_record(self.data, self.minival)


def snapshot(state: TrainState, memory: Memory) -> Snapshot:
    """A run as it is now, copied.

    Args:
        memory: where its tensors go; what was copied there before is overwritten.
    """
    means = {} if state.ema is None else state.ema.mean
    tested = model_tensors(state.model)
    training = {f"optimizer/{key}": value for key, value in optimizer_tensors(state.optimizer, state.model).items()}
    # The model's own file holds the mean, which is what is tested; the weights themselves stand beside the moments.
    training |= {f"weights/{name}": tested[name] for name in means}
    data, listing = state.data_said
    found = {} if state.source.allowance is None else state.source.allowance.found
    left_out = [json.dumps([split, *image]) for split, images in found.items() for image in images.items()]
    return Snapshot(
        state.step,
        memory.copied({**tested, **means}, "model/", torch.float32),
        memory.copied(training, ""),
        config_record(state.model, _record(state)),
        data,
        tuple(state.log),
        tuple(state.validation),
        {**({LEFT_OUT: text_of(left_out)} if left_out else {}), **listing},
    )


@contextlib.contextmanager
def averaged(state: TrainState) -> Iterator[None]:
    """Inside, the model has the weights that are tested: the running mean where there is one."""
    if state.ema is not None:
        state.ema.swap(state.model)
    try:
        yield
    finally:
        if state.ema is not None:
            state.ema.swap(state.model)


def _record(state: TrainState) -> dict[str, Any]:
    return {
        "config": dataclasses.asdict(state.config),
        "task": state.source.task,
        "step": state.step,
        "course": None if state.position is None else state.position.as_record(),
        "seconds": state.seconds,
        "validated": state.validated,
        "threads": torch.get_num_threads(),
        "ranks": state.ranks.size,
        "hardware": machine.hardware_name(state.model.anchor.device),
        "commit": machine.git_commit(),
        "parameters": sum(parameter.numel() for parameter in state.model.parameters()),
    }


def restore_state(state: TrainState, path: Path, warn: Callable[[str], None]) -> None:
    """The state of a checkpoint of the same configuration; what was left out of the data counts on.

    Args:
        warn: called with a line where it was trained with another number of threads or of ranks, which sum in another
            order.

    Raises:
        InputError: it is of another configuration, or its state does not fit the model.
    """
    training, files = training_record(path), verify_checkpoint(path)
    check_same_run(training["config"], state.config, path)
    tensors = _training_tensors(state, shard_files(files, TRAINING))
    moments = {key.removeprefix("optimizer/"): value for key, value in tensors.items() if key.startswith("optimizer/")}
    threads = torch.get_num_threads()
    if training["threads"] != threads:
        warn(f"{path} was trained with {training['threads']} threads, this is {threads}: not the same to the bit")
    if (before := training["ranks"]) != state.ranks.size:
        warn(f"{path} was trained by {before} ranks, this is {state.ranks.size}: not the same to the bit")
    if state.sharded:
        read_tensors(shard_files(files, WEIGHTS), model_tensors(state.model))
    else:
        state.model.load_state_dict(load_model(path).state_dict())
    if state.ema is not None:
        for name, mean in state.ema.mean.items():
            mean.copy_(state.model.get_parameter(name).detach())
            state.model.get_parameter(name).data.copy_(tensors[f"weights/{name}"])
    load_optimizer_tensors(state.optimizer, state.model, moments)
    state.step, state.seconds = training["step"], training["seconds"]
    state.log = files[LOG].read_text(encoding="utf-8").splitlines()
    state.validation = files[VALIDATION].read_text(encoding="utf-8").splitlines()
    state.validated = training["validated"]
    if state.source.allowance is not None:
        found: dict[str, dict[str, str]] = {}
        for _, (split, image, reason) in read_jsonl(files[LEFT_OUT], "an image") if LEFT_OUT in files else ():
            found.setdefault(split, {})[image] = reason
        state.source.allowance.restore(found)
    if training["course"] is not None:
        state.position = DataState.of(training["course"])


def _training_tensors(state: TrainState, parts: Sequence[Path]) -> dict[str, Tensor]:
    """What a checkpoint holds beside the model, of which each rank has what it holds of the model."""
    alone = len(parts) == 1 and not state.sharded
    found = load_tensors(parts[0]) if alone else tensor_shapes(parts)
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
    read_tensors(parts, into)
    return into
