"""The queue of a sweep in Optuna's storage: each cell is once in it, claimed by one worker, and finished once.

Optuna's own way is not taken where it would break that: its `GridSampler` counts failed cells as done and lets two
workers draw one; `ask` draws a new cell where the queue is empty; its heartbeats run inside `optimize` alone; and in
SQLite two processes may both see one trial waiting, and both begin it. So every change is made under one lock (a file
beside SQLite, a row of another database, which goes with its holder), `ask` is called where a trial waits, and what is
missing is put back into the queue by one rule (`_fill`): a cell that nobody has finished, runs or waits for, unless it
is given up.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sightline.distributed.processes import is_alive, machine, started_at
from sightline.errors import StorageError
from sightline.sweeps.space import SearchRange, SweepCell, SweepConfig, grid_cells, record_of, refuse_other
from sightline.sweeps.storage import Store, without_password

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

# Seconds between heartbeats, and without one until a worker of another machine counts as dead.
_BEAT, _DEAD_AFTER = 15, 300
# A failed cell is tried once more. One whose worker was lost goes on from its checkpoint, and so more often.
TRIES, LOSSES = 2, 5
_CELL, _WORKER, _FAULT, _LEFT, _SCORE = "cell", "worker", "fault", "left", "score"
_SWEEP = "sweep"


@dataclass(frozen=True)
class Claim:
    """A cell that this worker is to run: the number of its trial, and the cell; `again` where it was begun before."""

    trial: int
    cell: SweepCell
    again: bool


@dataclass(frozen=True)
class State:
    """Where a sweep is: numbers of cells, and of those that are at work or were given up what is known.

    Attributes:
        running: cell -> the words for its worker; failed: cell -> its last fault.
        scores: cell -> what was measured of it.
        cells: what each cell sets, as far as that is drawn.
    """

    waiting: tuple[int, ...] = ()
    running: Mapping[int, str] = field(default_factory=dict)
    scores: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    cells: Mapping[int, SweepCell] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.waiting and not self.running


class SweepQueue:
    """A worker's end of the queue.

    Args:
        url: of the database.
        name: of the study in it.
        beat, dead_after: seconds between heartbeats, and without one until a worker of another machine counts as dead.
        make: begin the study where it is not there.

    Raises:
        InputError, StorageError: as `Store`.
    """

    def __init__(
        self,
        config: SweepConfig,
        url: str,
        name: str,
        *,
        beat: int = _BEAT,
        dead_after: int = _DEAD_AFTER,
        make: bool = True,
    ) -> None:
        self.config, self.name, self._beat = config, name, beat
        process = os.getpid()
        self._me = {
            "host": socket.gethostname(), "process": process, "machine": machine(), "started": started_at(process),
            "token": secrets.token_hex(8),
        }  # fmt: skip
        self._grid = {} if config.grid is None else {cell.number: cell for cell in grid_cells(config)}
        self._store = Store(url, name, beat=beat, dead_after=dead_after, make=make)
        self._storage, self._study = self._store.storage, self._store.study

    def begin(self) -> None:
        """Put every cell into the queue that is not there yet; workers that begin at once put each in once.

        Raises:
            InputError: the study was begun with another file; names the field.
        """
        with self._store.locked():
            there = self._study.user_attrs.get(_SWEEP)
            if there is None:
                self._study.set_user_attr(_SWEEP, record_of(self.config))
            else:
                refuse_other(there, self.config, f"study {self.name}")
            self._fill(self._trials())

    def claim(self) -> Claim | None:
        """The next cell, which is this worker's from here on; None where none waits.

        Cells of workers that are gone come back first: dead on this machine, or without a heartbeat for long.
        """
        import optuna

        with self._store.locked():
            trials = self._trials()
            if self._lose_dead(trials):
                trials = self._trials()
            if self._fill(trials):
                trials = self._trials()
            waiting = [one for mine in trials.values() for one in mine if one.state.name == "WAITING"]
            if not waiting:
                return None
            # What `ask` takes. What is drawn hangs on the seed, the cell and what was measured, and on no worker.
            number = min(waiting, key=lambda one: one.number).user_attrs[_CELL]
            seed = (self.config.seed * 1_000_003 + number) % 2**32
            self._study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            trial = self._study.ask()
            while _CELL not in trial.user_attrs:
                # Somebody put one of their own into the study, which is no cell.
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
                trial = self._study.ask()
            cell = self._drawn(trial)
            trial.set_user_attr(_WORKER, self._me)
            self._storage.record_heartbeat(self._trial_id(trial.number))
            return Claim(trial.number, cell, len(trials[cell.number]) > 1)

    @contextlib.contextmanager
    def beating(self, claim: Claim) -> Iterator[Callable[[], bool]]:
        """Inside, a thread says that the worker lives.

        Yields:
            Whether the cell was taken over, because that was not heard for too long: then it is to be left.
        """
        ended, lost = threading.Event(), threading.Event()
        identity = self._trial_id(claim.trial)

        def beat() -> None:
            while not ended.wait(self._beat):
                # A storage that does not answer for a moment may do so the next time.
                with contextlib.suppress(Exception):
                    self._storage.record_heartbeat(identity)
                    if not self._is_mine(claim):
                        lost.set()
                        return

        thread = threading.Thread(target=beat, name="heartbeat of a cell", daemon=True)
        thread.start()
        try:
            yield lost.is_set
        finally:
            ended.set()
            thread.join()

    def owns(self, claim: Claim) -> bool:
        """Whether a cell is still this worker's."""
        with self._store.told():
            return self._is_mine(claim)

    def finish(self, claim: Claim, score: Mapping[str, Any], value: float) -> bool:
        """Say what was measured of a cell, which is never run again; False where it was taken over.

        Args:
            value: what a search makes large.
        """
        with self._store.locked():
            if not self._is_mine(claim):
                return False
            self._storage.set_trial_user_attr(self._trial_id(claim.trial), _SCORE, dict(score))
            self._study.tell(claim.trial, value)
            return True

    def fail(self, claim: Claim, fault: str) -> bool:
        """Say that a cell failed.

        Returns:
            Whether it is given up; else it is tried again.
        """
        with self._store.locked():
            self._end(claim, _FAULT, fault[:1000])
            trials = self._trials()
            self._fill(trials)
            return self._fault(trials[claim.cell.number]) is not None

    def leave(self, claim: Claim) -> None:
        """Give a cell back to the queue, as this worker was told to stop."""
        with self._store.locked():
            self._end(claim, _LEFT, True)
            self._fill(self._trials())

    def state(self) -> State:
        """Where the sweep is; nothing is changed."""
        with self._store.told():
            trials = self._trials()
        waiting, running, scores, failed = [], {}, {}, {}
        cells = dict(self._grid)
        for number in range(self.config.count):
            mine = trials.get(number, [])
            last = mine[-1] if mine else None
            if last is not None and last.params and not self._grid:
                cells[number] = SweepCell(number, dict(last.params))
            finished = [one for one in mine if one.state.name == "COMPLETE"]
            if finished:
                scores[number] = finished[0].user_attrs[_SCORE]
            elif last is not None and last.state.name == "RUNNING":
                running[number] = _words_of(last.user_attrs.get(_WORKER))
            elif (fault := self._fault(mine)) is not None:
                failed[number] = fault
            else:
                waiting.append(number)
        return State(tuple(waiting), running, scores, failed, cells)

    def _drawn(self, trial: Trial) -> SweepCell:
        """The cell of a trial; what it sets is part of the trial too, for whoever looks at it by Optuna's own tools."""
        number = trial.user_attrs[_CELL]
        if self._grid:
            cell = self._grid[number]
            for name, values in (self.config.grid or {}).items():
                trial.suggest_categorical(name, [_scalar(value) for value in values])
            return cell
        drawn = {}
        for name in self.config.search or {}:
            span = self.config.span(name)
            if not isinstance(span, SearchRange):
                choices = [_scalar(value) for value in span]
                drawn[name] = span[choices.index(trial.suggest_categorical(name, choices))]
            elif span.int:
                drawn[name] = trial.suggest_int(name, *span.ends, log=span.log)
            else:
                drawn[name] = trial.suggest_float(name, *span.ends, log=span.log)
        return SweepCell(number, drawn)

    def _fill(self, trials: Mapping[int, list[FrozenTrial]]) -> bool:
        """Put each cell into the queue that is neither finished, running, waiting nor given up; whether there was one.
        Under the lock.

        Args:
            trials: of each cell, as `_trials` gives them under it.
        """
        filled = False
        for number in range(self.config.count):
            mine = trials.get(number, [])
            if any(one.state.name in ("COMPLETE", "RUNNING", "WAITING") for one in mine) or self._fault(mine):
                continue
            cell = self._grid.get(number)
            fixed = {name: _scalar(value) for name, value in cell.fields.items()} if cell else {}
            # A search draws a cell once.
            fixed = fixed or next((dict(one.params) for one in reversed(mine) if one.params), {})
            self._study.enqueue_trial(fixed, user_attrs={_CELL: number})
            filled = True
        return filled

    def _lose_dead(self, trials: Mapping[int, list[FrozenTrial]]) -> bool:
        """End the trials of workers that are gone; whether there may be one. Under the lock, so that a trial without a
        worker was being claimed by a process that died in it."""
        import optuna

        running = [one for mine in trials.values() for one in mine if one.state.name == "RUNNING"]
        for trial in running:
            worker = trial.user_attrs.get(_WORKER)
            if worker is None or worker.get("token") == self._me["token"] or _is_gone(worker):
                self._storage.set_trial_state_values(self._trial_id(trial.number), optuna.trial.TrialState.FAIL)
        if running:
            # By the clock of the storage, as workers of other machines have others.
            optuna.storages.fail_stale_trials(self._study)
        return bool(running)

    def _fault(self, trials: list[FrozenTrial]) -> str | None:
        """Why a cell is given up; None where it is not."""
        faults = [one.user_attrs[_FAULT] for one in trials if _FAULT in one.user_attrs]
        ended = [one for one in trials if one.state.name == "FAIL"]
        losses = sum(_FAULT not in one.user_attrs and _LEFT not in one.user_attrs for one in ended)
        if len(faults) >= TRIES:
            return faults[-1]
        return f"its worker was lost {losses} times (killed, or out of memory)" if losses >= LOSSES else None

    def _end(self, claim: Claim, why: str, said: object) -> None:
        import optuna

        if self._is_mine(claim):
            self._storage.set_trial_user_attr(self._trial_id(claim.trial), why, said)
            self._study.tell(claim.trial, state=optuna.trial.TrialState.FAIL)

    def _is_mine(self, claim: Claim) -> bool:
        trial = self._storage.get_trial(self._trial_id(claim.trial))
        return trial.state.name == "RUNNING" and trial.user_attrs.get(_WORKER, {}).get("token") == self._me["token"]

    def _trials(self) -> dict[int, list[FrozenTrial]]:
        """The trials of each cell, in their order.

        Raises:
            StorageError: a row of one is damaged.
        """
        found: dict[int, list[FrozenTrial]] = {}
        damaged = f"{without_password(self._store.url)}: is damaged, or was changed by hand"
        try:
            trials = self._study.get_trials(deepcopy=False)
        except (ValueError, LookupError, TypeError) as error:
            raise StorageError(f"{damaged}: a row of {self.name} cannot be read ({error})") from error
        for trial in trials:
            worker, finished = trial.user_attrs.get(_WORKER), trial.state.name == "COMPLETE"
            if worker is not None and not _is_worker(worker):
                raise StorageError(f"{damaged}: {worker!r} is no worker (trial {trial.number} of {self.name})")
            if finished and _CELL in trial.user_attrs and not isinstance(trial.user_attrs.get(_SCORE), dict):
                raise StorageError(f"{damaged}: what trial {trial.number} of {self.name} reached is not there")
            # Somebody may have put one of their own into the study.
            if isinstance(number := trial.user_attrs.get(_CELL), int):
                found.setdefault(number, []).append(trial)
        return found

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._store.study_id, number)


def _is_worker(worker: object) -> bool:
    return isinstance(worker, dict) and type(worker.get("process")) is int and isinstance(worker.get("host"), str)


def _is_gone(worker: Mapping[str, Any]) -> bool:
    """Whether a worker is known to be dead: one of this machine, whose process is not there or another by now."""
    if worker.get("machine") is None or worker["machine"] != machine():
        return False
    if not is_alive(worker["process"]):
        return True
    return worker.get("started") is not None and started_at(worker["process"]) != worker["started"]


def _words_of(worker: Mapping[str, Any] | None) -> str:
    return "a worker" if worker is None else f"process {worker['process']} on {worker['host']}"


def _scalar(value: Any) -> Any:
    """A value as Optuna keeps it among choices: text of what is a list or a group."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)
