"""A run is written while its steps go on: one save at a time, in a thread, each part of it whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from torch import Tensor

from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError
from sightline.hub.load import read_config_record
from sightline.io.atomic import previous_path, remove_temporaries, storage_errors, write_file
from sightline.io.checkpoint import checkpoint_exists, tidied, write_checkpoint
from sightline.io.run_files import BEST, CHECKPOINT, LOG, RUN_FILES, VALIDATION
from sightline.io.run_lock import RunLock
from sightline.io.sharded import write_together
from sightline.io.tensors import save_tensors
from sightline.training.checkpoints import best_checkpoint, drop_measured, keep_older
from sightline.training.log import text_of, unheard
from sightline.training.snapshot import Folder, Memory, Snapshot
from sightline.training.state import TrainState, snapshot
from sightline.training.validation import best_line

Content = bytes | Callable[[Path], None]


class GivenUpError(Exception):
    """A save that nobody waits for any more; what was there before stands."""


class Saver:
    """Does one job at a time beside the steps; what one fails by is raised where the run asks next.

    A context manager, which waits for the job under way. Where it is left by an exception, that is raised and what the
    job fails by is warned of; a KeyboardInterrupt has the job given up.

    Attributes:
        given_up: jobs are to end with `GivenUpError` as soon as they can.
    """

    def __init__(self, warn: Callable[[str], None] = unheard) -> None:
        self.given_up = threading.Event()
        self._warn = warn
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        self._fault: BaseException | None = None

    def submit(self, job: Callable[[], object]) -> None:
        """Begin a job, once the one before is done; raises as `join`."""
        self.join()
        self._done.clear()
        thread = threading.Thread(target=self._do, args=(job,), name="saving", daemon=True)
        thread.start()
        self._thread = thread

    def _do(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            self._fault = error
        finally:
            self._done.set()

    def check(self) -> None:
        """Raise what the last job failed by, if it has ended; nobody waits."""
        if self._done.is_set():
            self.join()

    def join(self) -> None:
        """Wait for the job under way, and raise what it failed by."""
        if self._thread is not None:
            # A `Thread.join` that KeyboardInterrupt ends takes the thread for one that has ended.
            self._done.wait()
            self._thread = None
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        given_up = isinstance(error, KeyboardInterrupt)
        while self._thread is not None:
            try:
                if given_up:
                    self.given_up.set()
                self.join()
            except KeyboardInterrupt:
                # Whoever interrupts again does not want to wait; the next one may come at once.
                given_up = True
            except Exception as fault:
                if error is None:
                    raise
                if not isinstance(fault, GivenUpError) and str(fault) != str(error):
                    self._warn(str(fault))


class RunSaver(Saver):
    """Saves a run: what it is at a step is copied, and written while the next steps are taken."""

    def __init__(
        self, state: TrainState, out: Path, lock: RunLock | None, foreign: Collection[Path], warn: Callable[[str], None]
    ) -> None:
        """For a run as it begins or goes on; the best model that it has not kept yet is kept.

        Args:
            lock: of its folder, on the first rank; foreign: files there that no run wrote.
            warn: called with a line where something stands in the place of the best model, or that is gone; and as
                `Saver`.
        """
        super().__init__(warn)
        self._state, self._memory = state, Memory()
        if lock is not None:
            # What a killed sitting left: a run that has taken its last step writes none of these again.
            for place in (out / CHECKPOINT, previous_path(out / CHECKPOINT), out / BEST):
                tidied(place)
            with storage_errors(f"{out}: what a killed run left in it cannot be deleted"):
                for name in RUN_FILES:
                    remove_temporaries(out / name)
        asked = state.config.validation
        best = None if asked is None or lock is None else best_checkpoint(out, warn)
        by = None if asked is None else asked.best
        # Writing beside the steps, the ranks speak of it beside what they say of the steps.
        ranks = state.ranks.cpu_group() if state.sharded else SINGLE_RANK
        self._writer = RunWriter(out, lock, foreign, state.config.keep_last, best, by, self.given_up, ranks)
        if state.validation:
            self._writer.keep_best(snapshot(state, self._memory), warn)

    def save(self, *, wait: bool = False) -> None:
        """Save the run as it is now, once the save before is done, and raise what that failed by.

        Args:
            wait: until this one is done too.
        """
        # Before the copy: there is memory for one.
        self.join()
        self.submit(functools.partial(self._writer.save, snapshot(self._state, self._memory)))
        if wait:
            self.join()


@dataclass(frozen=True)
class CheckpointRequest:
    """A folder that is to be written.

    Attributes:
        files: what the first rank writes; parts: tensors of which each rank writes what it holds, none where one rank
            holds all.
    """

    files: Mapping[str, Content]
    parts: Mapping[str, Mapping[str, Tensor]]
    ranks: Ranks

    def write(self, place: Path, *, keep_previous: bool = False) -> None:
        """Replace a folder."""
        if self.parts:
            write_together(place, self.files, self.parts, self.ranks, keep_previous=keep_previous)
        else:
            write_checkpoint(place, self.files, keep_previous=keep_previous)


def write_asked_checkpoint(asked: CheckpointRequest, place: Path) -> None:
    """Write a checkpoint; the one that stood there becomes the one before it."""
    asked.write(place, keep_previous=True)


def write_best(asked: CheckpointRequest, place: Path) -> None:
    """Write the best model of a run."""
    asked.write(place)


@dataclass(frozen=True)
class RunWriter:
    """Writes what a run is at a step into its folder.

    Attributes:
        out: the folder; lock: of it, None on ranks that only write their part; foreign: files in it that no run wrote.
        keep_last: as in `TrainConfig`.
        best: where the best model is kept, None for nowhere; by: the metric that says which, as `best_line`.
        given_up: writing is to end as soon as it can.
        ranks: that each write what they hold, and each call every method; alone where one of them holds all.
    """

    out: Path
    lock: RunLock | None
    foreign: Collection[Path]
    keep_last: int
    best: Path | None
    by: str | None
    given_up: threading.Event
    ranks: Ranks = SINGLE_RANK

    def save(self, at: Snapshot) -> None:
        """A checkpoint, and the records beside it; then the model once more where it is the best.

        Raises:
            StorageError: one of them cannot be written, or the folder was moved; the checkpoint before it stands.
            GivenUpError: it was given up before it was whole.
        """
        older = self.keep_last - 1
        if self.lock is not None:
            self.lock.check()
            drop_measured(self.out, self.foreign)
            keep_older(self.out, older)
        # First, so that a log without a checkpoint says that there was one.
        write_asked_checkpoint(self._asked(at.checkpoint()), self.out / CHECKPOINT)
        if self.lock is not None:
            self.lock.check()
            keep_older(self.out, older, at.step)
            if at.validation:
                write_file(self.out / VALIDATION, text_of(at.validation))
            write_file(self.out / LOG, text_of(at.log))
        self.keep_best(at)

    def keep_best(self, at: Snapshot, warn: Callable[[str], None] = unheard) -> None:
        """Keep the model where the curve says that it is the best, and that it is not kept yet.

        After the checkpoint, which holds that line: killed in between, a continuation comes here first, and warns
        where an earlier one was the best and is not there any more.
        """
        due = self._best_is_due(at, warn)
        if due and self.lock is not None:
            self.lock.check()
        if self.ranks.all_gather_json(due and str(self.best))[0]:
            write_best(self._asked(at.model()), self.out / BEST)

    def _best_is_due(self, at: Snapshot, warn: Callable[[str], None]) -> bool:
        best = best_line(at.validation, self.by)
        if self.best is None or best is None:
            return False
        if best["step"] != at.step:
            if not checkpoint_exists(self.best):
                step = best["step"]
                warn(
                    f"{self.best}: is gone, and cannot be made again of step {step}; the next better one is kept there"
                )
            return False
        with contextlib.suppress(InputError):
            kept = read_config_record(self.best)["training"]
            # The time tells it from the same step of a run that went another way, as with other data.
            return (kept.get("step"), kept.get("seconds")) != (at.step, at.seconds)
        return True

    def _asked(self, content: Folder) -> CheckpointRequest:
        """To be written by all ranks, of which no file is begun once the save is given up."""

        def writer(content: Content) -> Callable[[Path], None]:
            def write(file: Path) -> None:
                if self.given_up.is_set():
                    raise GivenUpError
                if isinstance(content, bytes):
                    file.write_bytes(content)
                else:
                    content(file)

            return write

        whole = {} if self.ranks.size > 1 else {name: save_tensors(some) for name, some in content.tensors.items()}
        files = {name: writer(one) for name, one in (*whole.items(), *content.files.items())}
        return CheckpointRequest(files, content.tensors if self.ranks.size > 1 else {}, self.ranks)
