"""One step: its batches on every rank, one loss and one gradient of them all, one update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from sightline.data.batch import Batch
from sightline.data.skip_policy import Unreadable
from sightline.data.source import Source
from sightline.distributed.ranks import Ranks
from sightline.errors import NonFiniteError
from sightline.io.tensors import full_tensor
from sightline.models.head import TokenHead
from sightline.tasks.base import Task
from sightline.training.parallel import ParallelModel, black_image
from sightline.training.plan import StepSpec
from sightline.training.profiling import phase
from sightline.training.state import TrainState

Planned = tuple[StepSpec, Sequence[Batch]]


def agreed(
    steps: Iterator[Planned], source: Source, ranks: Ranks, stop: Callable[[], bool] | None
) -> Iterator[tuple[StepSpec, Sequence[Batch], bool]]:
    """The steps with their batches, once every rank has its own, and whether one of them is to stop after it.

    What a rank leaves out because it cannot be read, all of them count.
    """
    for step, batches in steps:
        asked = 0.0
        if ranks.size > 1:
            own = [one for batch in batches for one in batch.left_out]
            asked, left = ranks.all_reduce_sum([stop is not None and stop(), len(own)])
            if left:
                _count(ranks.all_gather_json([[one.path, one.reason] for one in own]), source, ranks)
        yield step, batches, asked > 0


def _count(said: Sequence[Sequence[Sequence[str]]], source: Source, ranks: Ranks) -> None:
    """Count what the other ranks left out; this one's is counted."""
    others = [Unreadable(*one) for rank, some in enumerate(said) if rank != ranks.rank for one in some]
    if source.allowance is not None:
        source.allowance.add("train", others)


def train_step(
    state: TrainState,
    task: Task,
    held: ParallelModel,
    batches: Sequence[Batch],
    rate: float,
    step: StepSpec,
) -> float | None:
    """The loss of a step, of which the update was made; None where none of its images can be read.

    Args:
        held: the model, as this rank holds it; batches: of this rank, on its device.
        rate: the learning rate.

    Raises:
        NonFiniteError: the loss or the gradient is not finite; on every rank, before the update.
    """
    model, optimizer, config = state.model, state.optimizer, state.config
    # What does not draw by the images' seeds, as a plug-in's head, draws from the global generator: seeded by the step,
    # so that a resumed run draws the same. Not by `torch.manual_seed`, which also reaches the GPUs of a run without.
    seed, device = (config.seed * 2**32 + state.step) % 2**63, model.anchor.device
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
    if isinstance(model.head, TokenHead):
        model.head.done = step.begins
    optimizer.zero_grad(set_to_none=True)
    if state.ranks.size == 1 and len(batches) == 1:
        value = _at_once(state, task, held, batches[0])
    else:
        value = _in_parts(state, task, held, batches, step)
    if value is None:
        # There is nothing to learn.
        return None
    with phase("optimizer"):
        _update(state, value, batches, rate, step)
    return value


def _update(state: TrainState, value: float, batches: Sequence[Batch], rate: float, step: StepSpec) -> None:
    """Move the weights by their gradients, which are those of all ranks.

    Raises:
        NonFiniteError: as `train_step`.
    """
    model, optimizer, config = state.model, state.optimizer, state.config
    limit = config.optimizer.clip if config.optimizer.clip is not None else math.inf
    norm = full_tensor(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
    if not (math.isfinite(value) and math.isfinite(float(norm))):
        ids = [index for batch in batches for index in batch.indices.tolist()]
        shown = ", ".join(str(index) for index in ids[:8])
        raise NonFiniteError(
            f"step {step.number + 1} of epoch {step.epoch} stopped before the update: loss {value}, gradient norm "
            f"{float(norm)}, images {shown}{', ...' if len(ids) > 8 else ''} (try a lower optimizer.lr)"
        )
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]
    optimizer.step()
    if state.ema is not None:
        state.ema.update(model, state.step)


def _at_once(state: TrainState, task: Task, held: ParallelModel, batch: Batch) -> float | None:
    """The loss of all images of a step together, with its gradient."""
    if not len(batch):
        return None
    with phase("forward"):
        total, units = task.loss(held(batch, state.config.precision), batch.targets, batch.layout)
        loss = total / max(units, 1)
    with phase("backward"):
        loss.backward()
    return float(loss.detach())


def _in_parts(
    state: TrainState, task: Task, held: ParallelModel, batches: Sequence[Batch], step: StepSpec
) -> float | None:
    """The same of images that are computed one part after the other, and on several ranks: the sum of all losses
    divided by the number of all units, which is known when the last is done."""
    model, ranks, precision = state.model, state.ranks, state.config.precision
    planned = step.after.images - step.before.images
    total, units = torch.zeros((), dtype=torch.float64), 0
    for number, batch in enumerate(batches, start=1):
        last = number == len(batches)
        if not len(batch) and not held.all_in_each_part and not (last and ranks.size > 1):
            continue
        with held.gradient_sync(last):
            with phase("forward"):
                if len(batch):
                    part, count = task.loss(held(batch, precision), batch.targets, batch.layout)
                else:
                    part, count = held.without_an_image(black_image(model), precision), 0
            # So that numbers keep their usual size, also in few bits.
            with phase("backward"):
                (part / planned).backward()
        total, units = total + part.detach().double().cpu(), units + count
    loss, counted, images = ranks.all_reduce_sum([float(total), units, sum(map(len, batches))])
    if not images:
        return None
    counted = max(counted, 1)
    if counted != planned:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(planned / counted)
    return loss / counted
