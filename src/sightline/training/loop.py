"""The training loop, from top to bottom: one step, its line in the log, and all steps of a run.

A run is a function of its configuration, the data and the machine: the weights are the same bit for bit, also where it
was killed and resumed, for any number of workers (docs/how-to/scale.md says for which settings).
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from sightline.data.batch import Batch
from sightline.data.skip_policy import Unreadable
from sightline.data.source import Source
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import NonFiniteError, StoppedError
from sightline.hub.load import load_model
from sightline.io.run_files import LOG, VALIDATION
from sightline.io.run_lock import RunLock
from sightline.models import Model
from sightline.models.compile import compile_blocks, uncompile_blocks
from sightline.models.head import TokenHead
from sightline.results.rows import MetricValue
from sightline.tasks.base import Task, task_class
from sightline.training.checkpointer import Checkpointer, checkpoint_due, restore_state
from sightline.training.determinism import reproducible, seed_generators
from sightline.training.joint import joint_backward
from sightline.training.log import parse_validation, restore_file, unheard
from sightline.training.optim import Ema, clip_gradients, freeze_trunk, learning_rate, make_optimizer
from sightline.training.parallel import ParallelModel, parallelize
from sightline.training.plan import StepSpec, training_plan
from sightline.training.profiling import Profiler, phase, waited_for
from sightline.training.progress import Pace, ProgressFile, Throughput, read_later
from sightline.training.setup import TrainSetup, task_options, warn_of_mirrors
from sightline.training.state import TrainState, averaged, check_finite
from sightline.training.validation import Validation

# Apple's GPUs have no float64.
_WIDEST = {"mps": torch.float32}


@dataclass(frozen=True)
class TrainProgress:
    """Where a run is, after a step.

    `images` and `total` count training images; `steps` and `total` are what is expected where the budget is one of
    tokens or operations. `tokens` and `flops` were spent until now, `loss` and `lr` are the step's (no loss where none
    of its images can be read), `seconds` of training so far, earlier sittings included, `pace` how fast. `validated` is
    what was measured last by validation, None before there is one.
    """

    step: int
    steps: int
    images: int
    total: int
    tokens: int
    flops: int
    loss: float | None
    seconds: float
    lr: float
    pace: Pace
    validated: MetricValue | None = None


def train_step(
    state: TrainState, task: Task, parallel: ParallelModel, parts: Sequence[Batch], lr: float, step: StepSpec
) -> Tensor:
    """One update of the weights by all images of a step, on all ranks together. Nothing here waits for a GPU.

    Args:
        parallel: the model, as this rank holds it.
        parts: this rank's images, computed one part after the other (gradient accumulation). A part without an image is
            computed where other ranks wait for it, and counts nothing.
        lr: learning rate, before the `lr_scale` of a parameter group.

    Returns:
        [2] on the device: the loss, a mean over the units of all ranks, and the norm of the gradient. Where one of them
        is not finite, the weights are worth nothing from here on.
    """
    model, optimizer, config = state.model, state.optimizer, state.config
    device, planned = model.anchor.device, step.after.images - step.before.images
    parts = [batch.to(device) for batch in parts]
    if isinstance(model.head, TokenHead):
        model.head.done = step.begins
    # With one part the loss is divided by its units before the backward pass; else by the images of the step, and the
    # gradient is corrected once the units of all parts and ranks are known.
    single = state.ranks.size == 1 and len(parts) == 1
    totals = torch.zeros(2, dtype=_WIDEST.get(device.type, torch.float64), device=device)
    optimizer.zero_grad(set_to_none=True)
    if task.joint:
        totals += joint_backward(model, task, parallel, parts, config.precision, planned, state.ranks).to(totals)
        parts, single = (), False
    for number, batch in enumerate(parts, start=1):
        last = number == len(parts)
        if not len(batch) and not parallel.waits_for(last):
            continue
        with parallel.gradient_sync(last):
            with phase("forward"):
                if len(batch):
                    loss, units = task.loss(parallel(batch, config.precision), batch.targets, batch.layout)
                else:
                    loss, units = parallel.empty_loss(config.precision), 0
            # A fill on the device: a copy from the host would wait for it.
            units = units if isinstance(units, Tensor) else torch.full((), units, device=device)
            with phase("backward"):
                (loss / (units.clamp(min=1) if single else planned)).backward()
        totals += torch.stack((loss.detach().to(totals), units.to(totals)))
    parallel.all_reduce(totals)
    units = totals[1].clamp(min=1)
    with phase("optimizer"):
        norm = clip_gradients(model.parameters(), config.optimizer.clip, None if single else planned / units)
        for group in optimizer.param_groups:
            group["lr"] = lr * group["lr_scale"]
        optimizer.step()
        if state.ema is not None:
            state.ema.update(model, state.step)
    return torch.stack((totals[0] / units, norm.to(totals)))


class StepLog:
    """The log of a run, a line a step, and who is told of each. Numbers of a GPU are read while the next step is
    computed, so that it never waits; one that is not finite ends the run then, before anything of that step is saved.

    Attributes:
        loss: of the last step, once it is read; None of one without an image.
    """

    def __init__(
        self, state: TrainState, out: Path, device: torch.device, observe: Callable[[TrainProgress], None]
    ) -> None:
        self.loss: float | None = None
        self._state, self._file, self._observe = state, ProgressFile(out), observe
        self._throughput = Throughput(device, state.config.precision, state.ranks)
        self._unread: tuple[StepSpec, float, list[int], Callable[[], list[float]]] | None = None
        self._untold: TrainProgress | None = None

    def add(self, step: StepSpec, lr: float, parts: Sequence[Batch], numbers: Tensor | None) -> None:
        """Take what `train_step` gave, None where no image of the step could be read."""
        self.loss = None
        if numbers is not None:
            images = [index for batch in parts for index in batch.indices.tolist()]
            self._unread = step, lr, images, read_later(numbers)

    def read(self) -> None:
        """Write the line of the last step and tell of it, if that was not done.

        Raises:
            NonFiniteError: its loss or its gradient was not finite.
        """
        if self._unread is not None:
            (step, lr, images, numbers), self._unread = self._unread, None
            self.loss, norm = numbers()
            if not (math.isfinite(self.loss) and math.isfinite(norm)):
                shown = ", ".join(map(str, images[:8])) + (", ..." if len(images) > 8 else "")
                raise NonFiniteError(
                    f"step {step.number + 1} of epoch {step.epoch}: loss {self.loss}, gradient norm {norm}, images "
                    f"{shown} (not saved; try a lower optimizer.lr)"
                )
            line = {"step": step.number + 1, **step.after._asdict(), "loss": self.loss, "lr": lr}
            self._state.log.append(json.dumps(line))
        if self._untold is not None:
            at, self._untold = replace(self._untold, loss=self.loss), None
            self._file.write(at)
            self._observe(at)

    def note(self, step: StepSpec, lr: float) -> None:
        """Tell where the run is after the last step: now, or once its line is read."""
        state, after, seen = self._state, step.after, self._state.validation[-1:]
        self._untold = TrainProgress(
            state.step, round(state.step / step.ends), after.images,
            state.config.images or round(after.images / step.ends), after.tokens, after.flops, None, state.seconds, lr,
            self._throughput.after(*after), *(parse_validation(json.loads(one)) for one in seen),
        )  # fmt: skip
        if self._unread is None:
            self.read()


def train_loop(
    setup: TrainSetup,
    out: Path,
    *,
    device: torch.device,
    lock: RunLock | None = None,
    ranks: Ranks = SINGLE_RANK,
    stop: Callable[[], bool] = lambda: False,
    observe: Callable[[TrainProgress], None] = lambda at: None,
    warn: Callable[[str], None] = unheard,
    profile: bool = False,
) -> Model:
    """Train what was set up, as `sightline.train` says, and give the model in evaluation mode: the mean of the weights
    where there is one.

    Args:
        lock: of the folder `out`, on the first rank.
        ranks: that train it together, each of which calls this: of each step each sees its part, and the first alone
            writes, measures, profiles and is observed.
        stop: asked in each step on every rank of several, else after it; where one says so, the run is saved and ends.

    Raises:
        UnreadableDataError: more images are unreadable than `skip_unreadable`.
        NonFiniteError: the loss or the gradient was not finite; nothing of that step is saved.
        StoppedError: `stop` said so before the last step; what was trained is saved.
        RanksError: another rank ended; the last checkpoint is whole.
        StorageError: a checkpoint cannot be written, or the folder was moved; the last one still loads.
        InputError: the log in the folder cannot be read.
    """
    config, source = setup.config, setup.source
    with contextlib.ExitStack() as stack:
        stack.enter_context(reproducible(config.deterministic, device))
        state, parallel = _begin_or_resume(setup, out, device, ranks, warn, stack)
        model = state.model
        task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
        validation = Validation(config, model, task, source, warn)
        saver = stack.enter_context(Checkpointer(state, out, lock, warn))
        plan, on_gpu = training_plan(config, model.config, source), device.type == "cuda"
        steps = plan.batches(model.image_rows, task, state.step, position=state.position, pin=on_gpu, ranks=ranks)
        # Its workers end with the loop, however that does.
        stack.callback(steps.close)
        log = StepLog(state, out, device, observe)
        profiler = stack.enter_context(Profiler(out, device, warn)) if profile and ranks.is_main else None
        began = time.perf_counter() - state.seconds
        for step, batches in waited_for(steps):
            images, stopping = _agree(batches, source, ranks, stop)
            seed_generators(config.seed, state.step, device)
            lr = learning_rate(config.optimizer, step.number, step.begins, step.ends)
            # Of nothing there is nothing to learn.
            numbers = train_step(state, task, parallel, batches, lr, step) if images else None
            # Of the step before, which a GPU has done by now.
            log.read()
            log.add(step, lr, batches, numbers)
            saver.check()
            state.step, state.position = state.step + 1, step.position
            # A process that is alone need not wait for the next step to hear of a signal.
            stopped = not step.last and (stopping if ranks.size > 1 else stop())
            due = step.last or checkpoint_due(step, config)
            # A GPU computes while this process goes on.
            if due or stopped or not on_gpu:
                log.read()
            state.seconds = time.perf_counter() - began
            if due or stopped:
                check_finite(model, step)
                # Where a run that is not stopped is validated too, so that the curves are the same.
                if due and saver.saves:
                    _validate(state, validation, step)
                saver.save(wait=step.last or stopped)
            if ranks.is_main:
                log.note(step, lr)
            if profiler is not None:
                profiler.after_step()
            if stopped:
                # The first rank has saved it: where another one ended before, a launcher would end all.
                ranks.barrier()
                expected = round(state.step / step.ends)
                raise StoppedError(f"stopped after step {state.step} of {expected}, which is saved in {out}")
        saver.finish()
    return _trained_model(state, out, device)


def _begin_or_resume(
    setup: TrainSetup,
    out: Path,
    device: torch.device,
    ranks: Ranks,
    warn: Callable[[str], None],
    stack: contextlib.ExitStack,
) -> tuple[TrainState, ParallelModel]:
    """The state of a run as it begins or goes on, and its model as this rank holds it until `stack` is left."""
    config, model = setup.config, setup.model.to(device).train()
    warn_of_mirrors(config, setup.source, warn)
    model.blocks.activation_checkpointing = config.recompute
    if config.frozen:
        freeze_trunk(model)
    if config.compile:
        compile_blocks(model, dynamic=config.dynamic_shapes)
        stack.callback(uncompile_blocks, model)
    parallel = parallelize(model, ranks, config.sharing)
    stack.callback(parallel.close)
    decay, warmup = config.optimizer.ema, config.optimizer.ema_warmup
    ema = None if decay is None else Ema(model, decay, bool(warmup))
    state = TrainState(model, make_optimizer(model, config.optimizer), ema, config, setup.source, ranks)
    if setup.last is not None:
        restore_state(state, setup.last, warn)
        if ranks.is_main:
            restore_file(out / LOG, state.log, warn)
            restore_file(out / VALIDATION, state.validation, warn)
    return state, parallel


def _trained_model(state: TrainState, out: Path, device: torch.device) -> Model:
    """In evaluation mode: of ranks that hold parts of it, as it was saved."""
    if state.sharded:
        return load_model(out).to(device)
    if state.ema is not None:
        state.ema.swap(state.model)
    return state.model.eval().requires_grad_(True)


def _validate(state: TrainState, validation: Validation, step: StepSpec) -> None:
    """Add a point to the curve after a step whose checkpoint is due, where it is to have one there."""
    if validation.is_due(step, len(state.validation), state.validated):
        with phase("validating"), averaged(state):
            line = validation.measure(state.model, state.step, step.after.images)
        state.validated = step.ends
        state.validation += [] if line is None else [line]


def _agree(batches: Sequence[Batch], source: Source, ranks: Ranks, stop: Callable[[], bool]) -> tuple[int, bool]:
    """How many images all ranks have in a step, and whether one of them is to stop after it; what a rank left out
    because it cannot be read, all of them count."""
    own = [[one.path, one.reason] for batch in batches for one in batch.left_out]
    if ranks.size == 1:
        return sum(map(len, batches)), False
    images, stopping, left = ranks.all_reduce_sum([sum(map(len, batches)), stop(), len(own)])
    if left and source.allowance is not None:
        others = [some for rank, some in enumerate(ranks.all_gather_json(own)) if rank != ranks.rank]
        source.allowance.add("train", [Unreadable(*one) for some in others for one in some])
    return int(images), stopping > 0
