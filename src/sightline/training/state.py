"""What changes in a training, and the optimizer's state by parameter name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from sightline.data.source import Source
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError, NonFiniteError
from sightline.io.checkpoint import read_tensors, tensor_shapes
from sightline.io.tensors import local_tensor
from sightline.models import Model
from sightline.training.config import TrainConfig
from sightline.training.optim import Ema
from sightline.training.plan import DataState, StepSpec

# The first is of raw weights beside a running mean; the other of a group that counts the steps of its parameters.
RAW_WEIGHTS, _GROUP_STEP = "weights", "group_step"


@dataclass
class TrainState:
    """All that changes in a run, beside what it is a run of.

    Attributes:
        config: resolved; source: the data, as its images are shown.
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


def check_finite(model: nn.Module, step: StepSpec) -> None:
    """Refuse weights that an update with a finite gradient made infinite: a rate beyond float32 does that.

    Raises:
        NonFiniteError: names the step.
    """
    if not all(bool(local_tensor(parameter).isfinite().all()) for parameter in model.parameters()):
        raise NonFiniteError(
            f"step {step.number + 1} of epoch {step.epoch}: the update left weights that are not finite; they are not "
            "saved (try a lower optimizer.lr)"
        )


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state by parameter name, as "exp_avg/blocks.0.norm1.weight"; and the steps of a group that counts
    them for all of its parameters (LAMB), as "group_step/0"."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    found = {f"{kind}/{names[one]}": value for one, state in optimizer.state.items() for kind, value in state.items()}
    steps = {
        f"{_GROUP_STEP}/{number}": torch.as_tensor(group["step"], dtype=torch.float32)
        for number, group in enumerate(optimizer.param_groups)
        if "step" in group
    }
    return {name: value for name, value in found.items() if value is not None} | steps


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, folder: Path) -> None:
    """The inverse of `optimizer_tensors`; a parameter of which nothing is stored has taken no step.

    Raises:
        InputError: the files in `folder` are damaged, or lack a tensor.
    """
    parameters, into = dict(model.named_parameters()), {}
    for key, shape in tensor_shapes(folder).items():
        kind, _, name = key.partition("/")
        if kind == _GROUP_STEP:
            into[key] = optimizer.param_groups[int(name)]["step"] = torch.zeros(())
        elif kind != RAW_WEIGHTS:
            if (parameter := parameters.get(name)) is None:
                raise InputError(f"{folder}: holds {key}, which is of no parameter of the model")
            # A number of steps lies on each rank.
            like = torch.zeros((), device=parameter.device)
            into[key] = torch.zeros_like(parameter, requires_grad=False) if shape else like
            optimizer.state[parameter][kind] = into[key]
    read_tensors(folder, into)
