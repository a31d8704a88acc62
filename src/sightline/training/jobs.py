"""Several runs at once, each in a process of its own: with few cores that beats one run with several threads."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import queue
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sightline import errors
from sightline.distributed import machine, signals
from sightline.distributed.processes import exit_with_parent
from sightline.errors import SightlineError, StoppedError
from sightline.evaluation import EvaluateConfig
from sightline.evaluation.drawn import write_pictures
from sightline.evaluation.logits import logits_name, write_logits
from sightline.io.atomic import write_file
from sightline.io.run_files import LOGITS, PREDICTIONS, RESULTS
from sightline.io.run_lock import RunLock
from sightline.results.predictions import dump_predictions
from sightline.results.rows import MetricValue, dump_rows, read_rows
from sightline.training.config import TrainConfig
from sightline.training.log import unheard
from sightline.training.run import measure_runs, open_run, train

# Seconds in which a job that is to end may finish its step.
_PATIENCE = 120.0


@dataclass(frozen=True)
class Job:
    """One run: train, then measure, on the data of the training and, in `also`, on others.

    Attributes:
        more: other measurements on the data of the training.
        logits: keep those of each measurement in the folder `logits` of its own.
        after: the name of a job that must be done before it begins, as one whose weights it begins with.
    """

    name: str
    train: TrainConfig
    evaluate: EvaluateConfig
    out: Path
    threads: int
    device: str = "cpu"
    also: Mapping[str, EvaluateConfig] = field(default_factory=dict)
    more: tuple[EvaluateConfig, ...] = ()
    logits: bool = False
    after: str | None = None

    @property
    def measured(self) -> dict[str, EvaluateConfig]:
        """How it is measured on each data set, that of the training first."""
        return {self.train.data: self.evaluate, **self.also}

    @property
    def measurements(self) -> list[tuple[str, EvaluateConfig]]:
        """The data and the way of each measurement, in order."""
        return [*self.measured.items(), *((self.train.data, config) for config in self.more)]

    @property
    def is_measured(self) -> bool:
        """Whether its folder holds the rows of all of them, and the logits that are kept."""
        path = self.out / RESULTS
        rows = read_rows(path) if path.exists() else []
        there = {(row.data, row.resolution) for row in rows}
        if not there.issuperset((data, side) for data, config in self.measurements for side in config.sides):
            return False
        return not self.logits or all((self.out / LOGITS / logits_name(vars(row))).exists() for row in rows)


@dataclass(frozen=True)
class JobProgress:
    """`phase` is "train" or "test"; `done` of `total` images; `loss` of the last training step, and
    `validated`, what was measured last by validation: None in a test."""

    name: str
    phase: str
    done: int
    total: int
    loss: float | None = None
    validated: MetricValue | None = None


def run_jobs(
    jobs: Sequence[Job],
    observe: Callable[[JobProgress], None],
    warn: Callable[[str], None] = unheard,
    at_once: int | None = None,
) -> None:
    """Run all jobs side by side and wait for them; a job that was done before is not done again.

    Each leaves `checkpoint`, `log.jsonl`, `predictions.csv` and `results.jsonl` in its folder.

    Args:
        at_once: how many are at work at a time, in their order; None begins all. One `after` another job waits for
            that where it is among them.

    Raises:
        SightlineError: of the first job that failed, with its own exit code; the others finish their step, and stop.
        KeyboardInterrupt: a signal came; the jobs have finished their steps and are saved.
    """
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    waiting, running, begun = list(jobs), dict[str, Any](), list[Any]()
    try:
        while waiting or running:
            missing = running.keys() | {job.name for job in waiting}
            room = (at_once or len(jobs)) - len(running)
            for job in [job for job in waiting if job.after not in missing][:room]:
                waiting.remove(job)
                running[job.name] = context.Process(target=_work, args=(job, messages), daemon=True)
                # Interrupted, this process has them finish their step.
                with signals.block_interrupts():
                    running[job.name].start()
                    begun.append(running[job.name])
            try:
                kind, name, content = messages.get(timeout=1.0)
            except queue.Empty:
                for name, process in running.items():
                    # A process that was killed says nothing; one that ended well has said so before.
                    if not process.is_alive() and process.exitcode != 0:
                        raise SightlineError(
                            f"run {name} ended with exit code {process.exitcode} (killed, or out of memory)"
                        ) from None
                continue
            if kind == "done":
                del running[name]
            elif kind == "failed":
                fault, text = content
                raise getattr(errors, fault, SightlineError)(f"run {name}: {text}")
            elif kind == "warning":
                warn(f"run {name}: {content}")
            else:
                observe(content)
    finally:
        _end(begun, messages)


def _end(processes: Sequence[Any], messages: Any) -> None:
    """Let jobs finish their step and end; one that does not is killed."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    deadline = time.monotonic() + _PATIENCE
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
        # Read on: a process does not end before what it has to say is taken.
        with contextlib.suppress(queue.Empty):
            messages.get(timeout=0.05)
    for process in processes:
        process.kill()
        process.join()


def _work(job: Job, messages: Any) -> None:
    exit_with_parent()

    def say(kind: str, content: object) -> None:
        messages.put((kind, job.name, content))

    try:
        with signals.handle_signals(own_process=False):
            run_job(job, functools.partial(say, "progress"), functools.partial(say, "warning"))
        outcome = "done", None
    except KeyboardInterrupt:
        outcome = "failed", (StoppedError.__name__, signals.last_words())
    except Exception as error:
        # Of another kind of fault there is none in `errors`.
        outcome = "failed", (type(error).__name__, fault_line(error))
    # What is left is to say so and to end: a signal would hit the interpreter in its tidying, with a traceback.
    signals.setup_worker_signals()
    say(*outcome)


def fault_line(error: Exception) -> str:
    """A fault in a line; one that no user caused, with its place."""
    if isinstance(error, SightlineError):
        return str(error)
    line, said = traceback.extract_tb(error.__traceback__)[-1], " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {said} ({Path(line.filename).name}:{line.lineno})"


def run_job(job: Job, observe: Callable[[JobProgress], None], warn: Callable[[str], None] = unheard) -> None:
    """Train and measure one run in this process, which holds its folder."""
    machine.set_threads(job.threads)
    with RunLock(job.out, warn) as lock:
        train(
            job.train,
            job.out,
            test=False,
            device=job.device,
            resume=True,
            observe=lambda at: observe(JobProgress(job.name, "train", at.images, at.total, at.loss, at.validated)),
            warn=warn,
            lock=lambda: contextlib.nullcontext(lock),
        )
        lock.check()
        # Training drops rows of earlier weights; those of these may be of other sizes, as a user measured them.
        if job.is_measured:
            return
        # Measured as it was saved, so that what is reported is what a reader of the checkpoint gets.
        run = open_run(job.out, device=machine.resolve_device(job.device))
        runs = {data: replace(run, data=data, opened=None) for data in job.measured}
        for data, one in runs.items():
            for split in job.measured[data].splits:
                one.opened, _ = one.source.check_readable(split, skip_unreadable=run.skip_unreadable)
        wanted = [(runs[data], config) for data, config in job.measurements]
        rows, answers, pictures = measure_runs(
            wanted,
            lambda done, total: observe(JobProgress(job.name, "test", done, total)),
            functools.partial(write_logits, job.out / LOGITS) if job.logits else None,
        )
        lock.check()
        # The rows last: where they are, the run is done.
        write_file(job.out / PREDICTIONS, dump_predictions(answers))
        write_pictures(rows, pictures, job.out)
        write_file(job.out / RESULTS, dump_rows(rows))
