"""The loop: on one process or several, resumable anywhere, the same weights each time."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.data.source import Source
from sightline.distributed import machine
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError, NonFiniteError, StoppedError
from sightline.hub.load import load_model
from sightline.io.run_files import LOG, VALIDATION
from sightline.io.run_lock import RunLock
from sightline.io.tensors import local_tensor
from sightline.models import Model
from sightline.models.compile import compile_blocks, uncompile_blocks
from sightline.results.rows import MetricValue
from sightline.tasks.base import task_class
from sightline.training.checkpointer import (
    Checkpointer,
    has_checkpoint,
    last_whole,
    measured_files,
    restore_state,
)
from sightline.training.config import TrainConfig
from sightline.training.log import parse_validation, restore_file, unheard
from sightline.training.optim import Ema, freeze_trunk, make_optimizer
from sightline.training.parallel import parallelize as held_by
from sightline.training.plan import StepSpec, as_trained_on, completed_parts, training_plan
from sightline.training.prepare import TrainSetup, build_model, resolve_config, set_up, task_options, warn_of_mirrors
from sightline.training.profiling import Profile, phase, waited_for
from sightline.training.progress_file import ProgressFile
from sightline.training.run import open_training_data
from sightline.training.same_data import minival_digest
from sightline.training.schedule import learning_rate
from sightline.training.speed import Pace, Throughput
from sightline.training.state import TrainState, averaged
from sightline.training.step import agreed, train_step
from sightline.training.validation import Validation


@dataclass(frozen=True)
class TrainProgress:
    """Where a run is, after a step.

    `images` and `total` count training images; `steps` and `total` are what is expected where the budget is one of
    tokens or operations. `tokens` and `flops` were spent until now, `loss` and `lr` are the step's (no loss where none
    of its images can be read), `seconds` of training so far, earlier sittings included, `pace` how fast. `validated` is
    what was measured last on `minival`, None before there is one.
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


def train(
    config: TrainConfig,
    out: str | Path,
    *,
    source: Source | None = None,
    prepared: TrainSetup | None = None,
    device: str = "auto",
    resume: bool = False,
    accept_changed_data: bool = False,
    observe: Callable[[TrainProgress], None] | None = None,
    warn: Callable[[str], None] | None = None,
    lock: RunLock | None = None,
    stop: Callable[[], bool] | None = None,
    ranks: Ranks = SINGLE_RANK,
    profile: bool = False,
) -> Model:
    """Train a model and leave its checkpoint in `out/checkpoint`, and a line a step in `out/log.jsonl`.

    Given the same configuration, machine, versions and threads, the weights are the same bit for bit, also when the
    run was killed and resumed.

    Args:
        config: of the run; what it leaves open is decided by `resolve`.
        out: the folder of the run; `resume` continues from its last checkpoint, if it has one.
        source: the data set, where the caller has opened and checked it already.
        prepared: the run, where the caller has done that and the rest; `config` and `source` are then those in it.
        accept_changed_data: resume also where the data is not what it was.
        observe: called after each step.
        warn: called with a line where the last checkpoint is damaged and the one before it is used, the number of
            threads is another one, or there is no profile.
        lock: of the folder, where the caller holds it already.
        stop: asked after each step; where it says so the run is saved and ends. Of several ranks it is asked before
            each step, and one of them is enough.
        ranks: that train it together, each of which calls this: of each step each sees its part, and the first alone
            writes, measures and is observed.
        profile: leave in `out/profile` where the time of ten steps goes, those of the first rank.

    Returns:
        The trained model, in evaluation mode.

    Raises:
        InputError: the configuration, or what is in `out`, is wrong, or another run is at work there.
        UnreadableDataError: more images are unreadable than `skip_unreadable`.
        NonFiniteError: the loss or the gradient is not finite; raised before the step is taken.
        StoppedError: `stop` said so before the last step; what was trained is saved.
        RanksError: another rank ended; the last checkpoint is whole.
        StorageError: a checkpoint cannot be written, or the folder was moved or taken over; the last one still loads.
    """
    where, out = machine.resolve_device(device if ranks.size == 1 else str(ranks.device)), Path(out)
    say = (warn or unheard) if ranks.is_main else unheard
    with _deterministic(where), contextlib.ExitStack() as held:
        if lock is None and ranks.is_main:
            lock = held.enter_context(RunLock(out, say))
        if prepared is None:
            prepared = _prepared(config, out, source, where, resume, accept_changed_data, say)
        config, source, last = prepared.config, prepared.source, prepared.last
        foreign = measured_files(out) if last is None else []
        model = prepared.model.to(where).train()
        model.blocks.activation_checkpointing = config.recompute
        if config.frozen:
            freeze_trunk(model)
        if config.compile:
            compile_blocks(model, dynamic=config.dynamic_shapes)
            held.callback(uncompile_blocks, model)
        holder = held_by(model, ranks, config.sharing)
        held.callback(holder.close)
        decay, warmup = config.optimizer.ema, config.optimizer.ema_warmup
        ema = None if decay is None else Ema(model, decay, bool(warmup))
        optimizer, data = make_optimizer(model, config.optimizer), source.fingerprint()
        state = TrainState(model, optimizer, ema, config, source, data, minival_digest(source, config), ranks)
        task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
        if last is not None:
            restore_state(state, last, say)
        warn_of_mirrors(config, source, say)
        if ranks.is_main and last is not None:
            restore_file(out / LOG, state.log, say)
            restore_file(out / VALIDATION, state.validation, say)
        validation = Validation(config, model, task, source, say)
        saver = None
        if ranks.is_main or state.sharded:
            saver = held.enter_context(Checkpointer(state, out, lock, foreign, say))
        started, before, progress = time.perf_counter(), state.seconds, ProgressFile(out)
        speed = Throughput(where, config.precision, ranks)
        plan = training_plan(config, model.config, source)
        pin = where.type == "cuda"
        steps = plan.batches(
            model.image_rows, task, state.step, position=state.position, pin=pin, ranks=ranks,
        )  # fmt: skip
        # Its workers end with the loop, however that does.
        held.callback(steps.close)
        profiled = Profile(out, where, say) if profile and ranks.is_main else None
        if profiled is not None:
            held.callback(profiled.give_up)
        for step, batches, asked in waited_for(agreed(steps, source, ranks, stop)):
            rate = learning_rate(config.optimizer, step.number, step.begins, step.ends)
            loss = train_step(state, task, holder, [batch.to(where) for batch in batches], rate, step)
            if saver is not None:
                saver.check()
            state.step += 1
            state.position = step.position
            state.seconds = before + time.perf_counter() - started
            spent = step.after
            if loss is not None:
                state.log.append(json.dumps({"step": state.step, **spent._asdict(), "loss": loss, "lr": rate}))
            stopped = not step.last and (asked if ranks.size > 1 else stop is not None and stop())
            due = step.last or _is_due(step, config)
            if due or stopped:
                _check_weights(state, step)
                if lock is not None:
                    lock.check()
                if saver is not None:
                    # At those that a run which is not stopped has too: the curve is the same.
                    with phase("validating"):
                        _measure(state, validation if due else None, step)
                    with phase("saving"):
                        saver.save(wait=step.last or stopped)
            planned = round(state.step / step.ends)
            total = config.images or round(spent.images / step.ends)
            if ranks.is_main:
                pace = speed.after(*spent)
                progress(
                    step=state.step, steps=planned, images=spent.images, total=total, tokens=spent.tokens, loss=loss,
                    lr=rate, seconds=state.seconds, pace=pace,
                )  # fmt: skip
                if observe is not None:
                    seen = parse_validation(json.loads(state.validation[-1])) if state.validation else None
                    at = planned, spent.images, total, *spent[1:], loss, state.seconds, rate, pace, seen
                    observe(TrainProgress(state.step, *at))
            if profiled is not None:
                profiled.after_step()
            if stopped:
                said = f"stopped after step {state.step} of {planned}, which is saved in {out}"
                # The first rank has saved it: where another one ended before, a launcher would end all.
                ranks.barrier()
                raise StoppedError(said)
        if ranks.is_main:
            assert saver is not None
            saver.finish()
            if profiled is not None:
                profiled.close()
    if state.sharded:
        return load_model(out).to(where)
    if ema is not None:
        ema.swap(model)
    return model.eval().requires_grad_(True)


def _prepared(
    config: TrainConfig,
    out: Path,
    source: Source | None,
    device: torch.device,
    resume: bool,
    accept_changed_data: bool,
    warn: Callable[[str], None],
) -> TrainSetup:
    """The run, where its caller has not prepared it."""
    if has_checkpoint(out) and not resume:
        raise InputError(f"{out}: holds a run already; resume=True continues it, another folder begins one")
    if source is None:
        source, _ = open_training_data(config).check_readable("train", skip_unreadable=config.skip_unreadable)
    source, last = as_trained_on(source, config), last_whole(out, warn) if resume else None
    own = resolve_config(config, source, device, last)
    model, begins = build_model(own, source), config.init_from
    return set_up(own, source, model, last, init_from=begins, accept_changed_data=accept_changed_data, warn=warn)


def _measure(state: TrainState, validation: Validation | None, step: StepSpec) -> None:
    """A line more of the validation curve, where one is due; ranks that hold a part of the model measure together."""
    if validation is None or not validation.is_due(step, len(state.validation), state.validated):
        return
    with averaged(state):
        line = validation.measure(state.model, state.step, step.after.images)
    state.validated = step.ends
    state.validation += [] if line is None else [line]


def _is_due(step: StepSpec, config: TrainConfig) -> bool:
    """Whether a checkpoint is written after a step: each `checkpoint_every` images, or so many times in a run."""
    every = config.checkpoint_every
    if every is None:
        return completed_parts(config.checkpoints, step.ends) != completed_parts(config.checkpoints, step.begins)
    return step.after.images // every != step.before.images // every


@contextlib.contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Deterministic kernels; afterwards their switches and the random generators are as they were."""
    was, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    # Deterministic mode fills all memory with NaN before an operator writes there: time for what nothing reads.
    memory: Any = torch.utils.deterministic
    filled, memory.fill_uninitialized_memory = memory.fill_uninitialized_memory, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count()) if device.type == "cuda" else ()):
            yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warned)
        memory.fill_uninitialized_memory = filled


def _check_weights(state: TrainState, step: StepSpec) -> None:
    """Refuse weights that an update with a finite gradient made infinite: a rate beyond float32 does that."""
    if not all(bool(local_tensor(parameter).isfinite().all()) for parameter in state.model.parameters()):
        raise NonFiniteError(
            f"step {step.number + 1} of epoch {step.epoch}: the update left weights that are not finite; they are not "
            "saved (try a lower optimizer.lr)"
        )
