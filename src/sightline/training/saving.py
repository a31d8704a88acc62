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

from sightline.checkpoint import folder_exists, write_folder
from sightline.errors import InputError
from sightline.load import read_record
from sightline.owner import Owner
from sightline.replacing import write_file
from sightline.run_files import CHECKPOINT, LOG, VALIDATION
from sightline.training.checkpoints import drop_measured, keep_older, place_of_best
from sightline.training.log import text_of, unheard
from sightline.training.snapshot import Content, Memory, Snapshot
from sightline.training.state import RunState, snapshot
from sightline.training.validation import best_line


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
        self._fault: BaseException | None = None

    def submit(self, job: Callable[[], object]) -> None:
        """Begin a job, once the one before is done; raises as `join`."""
        self.join()
        self._thread = threading.Thread(target=self._do, args=(job,), name="saving", daemon=True)
        self._thread.start()

    def _do(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            self._fault = error

    def check(self) -> None:
        """Raise what the last job failed by, if it has ended; nobody waits."""
        if self._thread is not None and not self._thread.is_alive():
            self.join()

    def join(self) -> None:
        """Wait for the job under way, and raise what it failed by."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.given_up.set()
        while self._thread is not None:
            try:
                self.join()
            except KeyboardInterrupt:
                # Whoever interrupts again does not want to wait.
                self.given_up.set()
            except Exception as fault:
                if error is None:
                    raise
                if not isinstance(fault, GivenUpError) and str(fault) != str(error):
                    self._warn(str(fault))


class RunSaver(Saver):
    """Saves a run: what it is at a step is copied, and written while the next steps are taken."""

    def __init__(
        self, state: RunState, out: Path, owner: Owner, foreign: Collection[Path], warn: Callable[[str], None]
    ) -> None:
        """For a run as it begins or goes on; the best model that it has not kept yet is kept.

        Args:
            owner: of its folder; foreign: files there that no run wrote.
            warn: called with a line where something stands in the place of the best model, or that is gone; and as
                `Saver`.
        """
        super().__init__(warn)
        self._state, self._memory = state, Memory()
        asked = state.config.validation
        best = None if asked is None else place_of_best(out, warn)
        by = None if asked is None else asked.best
        self._writer = RunWriter(out, owner, foreign, state.config.keep_last, best, by, self.given_up)
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


def write_checkpoint(files: Mapping[str, Content], place: Path) -> None:
    """Write a checkpoint; the one that stood there becomes the one before it."""
    write_folder(place, files, keep_previous=True)


def write_best(files: Mapping[str, Content], place: Path) -> None:
    """Write the best model of a run."""
    write_folder(place, files)


@dataclass(frozen=True)
class RunWriter:
    """Writes what a run is at a step into its folder.

    Attributes:
        out: the folder; owner: of it; foreign: files in it that no run wrote.
        keep_last: as in `TrainConfig`.
        best: where the best model is kept, None for nowhere; by: the metric that says which, as `best_line`.
        given_up: writing is to end as soon as it can.
    """

    out: Path
    owner: Owner
    foreign: Collection[Path]
    keep_last: int
    best: Path | None
    by: str | None
    given_up: threading.Event

    def save(self, at: Snapshot) -> None:
        """A checkpoint, the records beside it, and the model once more where it is the best.

        Raises:
            StorageError: one of them cannot be written, or the folder is another's; the checkpoint before it stands.
            GivenUpError: it was given up before it was whole.
        """
        older = self.keep_last - 1
        with self.owner.held():
            drop_measured(self.out, self.foreign)
            keep_older(self.out, older)
            # First, so that a log without a checkpoint says that there was one.
            write_checkpoint(self._while_wanted(at.checkpoint_files()), self.out / CHECKPOINT)
            self.owner.check()
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
        best = best_line(at.validation, self.by)
        if self.best is None or best is None:
            return
        if best["step"] != at.step:
            if not folder_exists(self.best):
                step = best["step"]
                warn(
                    f"{self.best}: is gone, and cannot be made again of step {step}; the next better one is kept there"
                )
            return
        with contextlib.suppress(InputError):
            kept = read_record(self.best)["training"]
            # The time tells it from the same step of a run that went another way, as with other data.
            if (kept.get("step"), kept.get("seconds")) == (at.step, at.seconds):
                return
        with self.owner.held():
            write_best(self._while_wanted(at.model_files()), self.best)

    def _while_wanted(self, files: Mapping[str, Content]) -> dict[str, Content]:
        """The same files, of which none is begun once the save is given up."""

        def writer(content: Content) -> Callable[[Path], None]:
            def write(file: Path) -> None:
                if self.given_up.is_set():
                    raise GivenUpError
                if isinstance(content, bytes):
                    file.write_bytes(content)
                else:
                    content(file)

            return write

        return {name: writer(content) for name, content in files.items()}
