"""The queue of a sweep in Optuna's storage: each cell is once in it, claimed by one worker, and finished once.

Optuna's own `optimize` is not taken: its `GridSampler` counts failed cells as done and lets two workers draw one, and
`ask` draws a new cell where the queue is empty. So every change is made under one file lock, `ask` is called where a
trial waits, and what is missing is put back into the queue by one rule (`cell_outcome`). A worker holds a lock file of
its own while it lives, by which others see at once that it was killed; with a database, machines that see another
folder do so by Optuna's heartbeats.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import socket
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import Timeout

from sightline.errors import InputError, StorageError
from sightline.io.atomic import make_parent
from sightline.io.run_files import QUEUE
from sightline.io.run_lock import locked
from sightline.sweeps.space import SearchRange, SweepCell, SweepConfig, grid_cells, record_of, refuse_other

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

# Seconds between heartbeats in a database, and without one until a worker counts as dead.
_BEAT, _DEAD_AFTER = 15, 300
# A failed cell is tried once more. One whose worker was lost goes on from its checkpoint, and so more often.
TRIES, LOSSES = 2, 5
# What is noted of a trial, and of the study.
_CELL, _WORKER, _FAULT, _LEFT, _SCORE, _SWEEP = "cell", "worker", "fault", "left", "score", "sweep"


@dataclass(frozen=True)
class Claim:
    """A cell that this worker is to run: its trial, and the cell; `again` where it was begun before."""

    trial: Trial
    cell: SweepCell
    again: bool


@dataclass(frozen=True)
class State:
    """Where a sweep is, by numbers of cells.

    Attributes:
        running: cell -> the words for its worker; scores: cell -> what was measured of it; failed: cell -> its last
            fault, of those that are given up.
        cells: what each cell sets, as far as that is drawn.
    """

    waiting: tuple[int, ...]
    running: Mapping[int, str]
    scores: Mapping[int, Mapping[str, Any]]
    failed: Mapping[int, str]
    cells: Mapping[int, SweepCell]

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.waiting and not self.running

    def name(self, number: int) -> str:
        """Of a cell; its number until it is drawn."""
        return self.cells[number].name if number in self.cells else f"{number:03}"


class SweepQueue:
    """A worker's end of the queue.

    Args:
        folder: of the sweep, which holds the journal of the queue and the locks.
        name: of the study.
        url: of a database in place of the journal.
        make: begin the study where it is not there.

    Raises:
        InputError: the URL is none, what talks to such a database is not installed, or there is no study.
        StorageError: the storage cannot be read or written.
    """

    def __init__(
        self, config: SweepConfig, folder: Path, name: str, *, url: str | None = None, make: bool = True
    ) -> None:
        require_optuna()
        import optuna

        self.config, self.folder, self.name, self._url = config, folder, name, url
        self._journal = folder.absolute() / QUEUE
        self._place = str(self._journal) if url is None else without_password(url)
        self._me = {"host": socket.gethostname(), "process": os.getpid(), "token": secrets.token_hex(8)}
        self._grid = {} if config.grid is None else {cell.number: cell for cell in grid_cells(config)}
        self._beats_for: int | None = None
        if make:
            make_parent(self._journal)
            with self._locked():
                self._storage = self._open()
                self._study = optuna.create_study(
                    study_name=name, storage=self._storage, direction="maximize", load_if_exists=True
                )
            return
        try:
            if url is None and not self._journal.is_file():
                raise KeyError(name)
            with self._faults():
                self._storage = self._open()
                self._study = optuna.load_study(study_name=name, storage=self._storage)
        except KeyError:
            said = f"{self._place}: holds no sweep {name}, which was not begun (begin it with: sightline sweep)"
            raise InputError(said) from None

    def _open(self) -> BaseStorage:
        import optuna
        from optuna.storages.journal import JournalFileBackend
        from sqlalchemy import exc

        if self._url is None:
            return optuna.storages.JournalStorage(JournalFileBackend(str(self._journal)))
        engine = {} if self._url.startswith("sqlite") else {"pool_pre_ping": True}
        try:
            return optuna.storages.RDBStorage(
                self._url, engine_kwargs=engine, heartbeat_interval=_BEAT, grace_period=_DEAD_AFTER
            )
        except (ImportError, exc.ArgumentError) as error:
            raise InputError(f"storage {self._place}: cannot be used here ({error.__cause__ or error})") from None

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Inside, this is one of the workers, and every cell is in the queue.

        Raises:
            InputError: the study was begun with another file; names the field.
        """
        with contextlib.ExitStack() as held:
            with self._locked():
                held.enter_context(locked(self._lock_of(self._me), warn=_refuse))
                began = self._study.user_attrs.get(_SWEEP)
                if began is None:
                    self._study.set_user_attr(_SWEEP, record_of(self.config))
                else:
                    refuse_other(began, self.config, f"study {self.name}")
                self._fill()
            if self._url is not None:
                ended = threading.Event()
                held.callback(ended.set)
                threading.Thread(target=self._beat, args=(ended,), daemon=True).start()
            yield

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(_BEAT):
            # A storage that does not answer for a moment may do so the next time.
            with contextlib.suppress(Exception):
                if self._beats_for is not None:
                    self._storage.record_heartbeat(self._beats_for)  # type: ignore[attr-defined]

    def claim(self) -> Claim | None:
        """The next cell, which is this worker's from here on; None where none waits. Cells of workers that are gone
        come back first."""
        import optuna

        with self._locked():
            for trial in self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
                if self._is_gone(trial.user_attrs.get(_WORKER)):
                    self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            # By the clock of a database, as workers of other machines have others; a journal has none.
            optuna.storages.fail_stale_trials(self._study)
            self._fill()
            waiting = self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
            if not waiting:
                return None
            # What `ask` takes. What is drawn hangs on the seed, the cell and what was measured, and on no worker.
            number = min(waiting, key=lambda one: one.number).user_attrs[_CELL]
            seed = (self.config.seed * 1_000_003 + number) % 2**32
            self._study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            trial = self._study.ask()
            others = [one for one in self._trials()[trial.user_attrs[_CELL]] if one.number != trial.number]
            claim = Claim(trial, self._drawn(trial), bool(others))
            trial.set_user_attr(_WORKER, self._me)
            if cell_outcome(others)[0] in ("running", "finished"):
                # A worker that sees another folder put it into the queue as well.
                self._end_trial(claim, _LEFT, True)
                return None
            if self._url is not None:
                study = self._storage.get_study_id_from_name(self.name)
                self._beats_for = self._storage.get_trial_id_from_study_id_trial_number(study, trial.number)
                self._storage.record_heartbeat(self._beats_for)  # type: ignore[attr-defined]
            return claim

    def finish(self, claim: Claim, score: Mapping[str, Any], value: float) -> bool:
        """Say what was measured of a cell, which is never run again; False where it was taken over, because this
        worker's heartbeat was not heard. `value` is what a search makes large."""
        with self._locked():
            return self._end_trial(claim, _SCORE, dict(score), value)

    def fail(self, claim: Claim, fault: str) -> bool:
        """Say that a cell failed; whether it is given up, and not tried again."""
        with self._locked():
            self._end_trial(claim, _FAULT, fault[:1000])
            self._fill()
            return cell_outcome(self._trials()[claim.cell.number])[0] == "failed"

    def leave(self, claim: Claim) -> None:
        """Give a cell back to the queue, as this worker was told to stop."""
        with self._locked():
            self._end_trial(claim, _LEFT, True)
            self._fill()

    def _end_trial(self, claim: Claim, kind: str, said: object, value: float | None = None) -> bool:
        """End the trial of a cell; False where another worker has."""
        import optuna

        if self._study.get_trials(deepcopy=False)[claim.trial.number].state.name != "RUNNING":
            return False
        claim.trial.set_user_attr(kind, said)
        self._study.tell(claim.trial, value, state=optuna.trial.TrialState.FAIL if value is None else None)
        return True

    def state(self) -> State:
        """Where the sweep is; nothing is changed."""
        with self._faults():
            trials = self._trials()
        drawn = {number: some[-1].params for number, some in trials.items() if some[-1].params}
        cells = self._grid or {number: SweepCell(number, params) for number, params in drawn.items()}
        found: dict[str, dict[int, Any]] = defaultdict(dict)
        for number in range(self.config.count):
            outcome, said = cell_outcome(trials[number])
            found[outcome][number] = said
        waiting = tuple(sorted(found["waiting"] | found["missing"]))
        return State(waiting, found["running"], found["finished"], found["failed"], cells)

    def _fill(self) -> None:
        """Put each cell into the queue that is missing in it."""
        trials = self._trials()
        for number in range(self.config.count):
            if cell_outcome(trials[number])[0] == "missing":
                if number in self._grid:
                    fixed = {name: _scalar(value) for name, value in self._grid[number].fields.items()}
                else:
                    # A search draws a cell once.
                    fixed = next((dict(one.params) for one in reversed(trials[number]) if one.params), {})
                self._study.enqueue_trial(fixed, user_attrs={_CELL: number})

    def _trials(self) -> defaultdict[int, list[FrozenTrial]]:
        found: defaultdict[int, list[FrozenTrial]] = defaultdict(list)
        for trial in self._study.get_trials(deepcopy=False):
            found[trial.user_attrs[_CELL]].append(trial)
        return found

    def _drawn(self, trial: Trial) -> SweepCell:
        """The cell of a trial; what it sets is part of the trial too, for whoever looks at it by Optuna's own tools."""
        drawn: dict[str, Any] = {}
        for name in self.config.varied:
            span = self.config.span(name)
            if not isinstance(span, SearchRange):
                choices = [_scalar(value) for value in span]
                drawn[name] = span[choices.index(trial.suggest_categorical(name, choices))]
            elif span.int:
                drawn[name] = trial.suggest_int(name, *span.ends, log=span.log)
            else:
                drawn[name] = trial.suggest_float(name, *span.ends, log=span.log)
        number = trial.user_attrs[_CELL]
        # Of a grid by its number: values such as 1 and 1.0 are one among choices.
        return self._grid.get(number) or SweepCell(number, drawn)

    def _lock_of(self, worker: Mapping[str, Any]) -> Path:
        return self.folder / f".worker-{worker['token']}"

    def _is_gone(self, worker: Mapping[str, Any] | None) -> bool:
        """Under the lock, so that a trial without a worker was being claimed by a process that died in it."""
        if self._url is not None and (worker is None or not self._lock_of(worker).exists()):
            # Of a machine that may see another folder; its heartbeats end too.
            return False
        try:
            with contextlib.nullcontext() if worker is None else locked(self._lock_of(worker), timeout=0):
                return True
        except Timeout:
            return False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._faults(), locked(self.folder / f".{QUEUE}.lock", warn=_refuse):
            if self._journal.exists():
                _drop_cut_line(self._journal)
            yield

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        import optuna
        from sqlalchemy import exc

        try:
            yield
        except (OSError, json.JSONDecodeError, optuna.exceptions.OptunaError, exc.SQLAlchemyError) as error:
            cause = error.__cause__ if isinstance(error, optuna.exceptions.StorageInternalError) else None
            said = str(cause or error).splitlines()[0][:200]
            raise StorageError(f"{self._place}: the storage of the sweep fails ({said})") from error


def cell_outcome(trials: Sequence[FrozenTrial]) -> tuple[str, Any]:
    """What became of a cell by its trials: `finished` and its score, `running` and the words for its worker, `failed`
    and why it is given up, `waiting`, or `missing` in the queue."""
    by_state = {one.state.name: one for one in reversed(trials)}
    if "COMPLETE" in by_state:
        return "finished", by_state["COMPLETE"].user_attrs[_SCORE]
    if "RUNNING" in by_state:
        worker = by_state["RUNNING"].user_attrs.get(_WORKER)
        return "running", "process {process} on {host}".format(**worker) if worker else "a worker"
    if "WAITING" in by_state:
        return "waiting", None
    faults = [one.user_attrs[_FAULT] for one in trials if _FAULT in one.user_attrs]
    losses = sum(_FAULT not in one.user_attrs and _LEFT not in one.user_attrs for one in trials)
    if len(faults) >= TRIES:
        return "failed", faults[-1]
    if losses >= LOSSES:
        return "failed", f"its worker was lost {losses} times (killed, or out of memory)"
    return "missing", None


def require_optuna() -> None:
    """Refuse to go on where Optuna is not installed, and silence what it says of itself."""
    if importlib.util.find_spec("optuna") is None:
        raise InputError('a sweep needs Optuna; install it with: pip install ".[sweep]" (or: pip install optuna)')
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Heartbeats outside of `optimize` are ours.
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="Heartbeat of storage")


def without_password(url: str) -> str:
    """A database URL as it may be shown and written down.

    Raises:
        InputError: it is none.
    """
    from sqlalchemy import exc, make_url

    try:
        found = make_url(url)
    except exc.ArgumentError:
        found = None
    if found is None or (found.get_backend_name() == "sqlite" and found.database in (None, "", ":memory:")):
        raise InputError(
            "storage: is no URL of a database that other workers see (expected as sqlite:///FILE or "
            "postgresql://USER@HOST/NAME)",
            field="storage",
        )
    return found._replace(password=None).render_as_string(hide_password=False)


def _refuse(said: str) -> None:
    raise StorageError(said)


def _drop_cut_line(journal: Path) -> None:
    """A full disk may have cut the last line, behind which nothing could be read."""
    with journal.open("rb") as stream:
        stream.seek(max(0, journal.stat().st_size - 1))
        whole = stream.read() in (b"", b"\n")
    if not whole:
        os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)


def _scalar(value: Any) -> Any:
    """A value as Optuna keeps it among choices: text of what is a list or a group."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)
