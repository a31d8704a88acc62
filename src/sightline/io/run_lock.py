"""Who the folder of a run belongs to: one process at a time, which says that it lives by a heartbeat.

`owner.json` names the host, the process and when that began. Who finds it may have the folder where its owner is dead:
on the same machine the process says so at once; of another one only its heartbeat is seen, the file's time, which
counts as dead when it has not moved for `DEAD_AFTER` seconds of the file system's own clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sightline.distributed import signals
from sightline.distributed.processes import is_alive, locked, machine, started_at
from sightline.errors import InputError, StorageError
from sightline.io.atomic import storage_errors, write_file
from sightline.io.read import CONFIGURATION, parse_json, read_bytes
from sightline.io.run_files import OWNER

BEAT, DEAD_AFTER = 15.0, 300.0
# Seconds for an owner that is saving while its folder is taken over; then it counts as hanging.
PATIENCE = 60.0


@dataclass(frozen=True)
class _Record:
    """What `owner.json` holds.

    Attributes:
        machine: see `processes.machine`; started: of the process, see `processes.started_at`.
        token: of this ownership.
    """

    host: str
    process: int
    machine: str | None
    started: int | None
    token: str

    @property
    def words(self) -> str:
        here = self.machine is not None and self.machine == machine()
        return f"process {self.process} on {'this host' if here else 'host ' + self.host}"


class Owner(contextlib.AbstractContextManager["Owner"]):
    """The ownership of a folder. A context manager, which gives it back."""

    def __init__(self, folder: Path, record: _Record, made: bool) -> None:
        self.folder, self._record, self._made = folder, record, made
        self._ended = threading.Event()
        self._lost: str | None = None
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            self._why_not_mine()
            if self._lost is not None:
                return
            with contextlib.suppress(OSError):
                os.utime(self.folder / OWNER)

    def _why_not_mine(self) -> str | None:
        """Why the folder is not ours, None where it is; what cannot be read for a moment, as over a network, may be
        ours the next time."""
        found = _read(self.folder)
        if isinstance(found, str):
            return f"its {OWNER} cannot be read or was changed, and this run writes no more"
        if found is None:
            self._lost = "it was moved or deleted while the run was going on, and nothing more is written"
        elif found != self._record:
            self._lost = f"{found.words} has taken it over, and this run writes no more"
        return self._lost

    def check(self, *, read: bool = True) -> None:
        """See that the folder is still ours.

        Args:
            read: look now; else what the last heartbeat saw counts.

        Raises:
            StorageError: it was moved, deleted or taken over.
        """
        why = self._why_not_mine() if self._lost is None and read else self._lost
        if why is not None:
            raise StorageError(f"{self.folder}: {why}; its last checkpoint is whole where the folder is now")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Inside, the folder is ours and nobody takes it over: for what replaces files in it.

        Raises:
            StorageError: as `check`; or it cannot be written.
        """
        with contextlib.ExitStack() as inside:
            try:
                inside.enter_context(locked(_lock_of(self.folder)))
            except OSError as error:
                self.check()
                raise StorageError(f"{self.folder}: cannot be written ({error.strerror or error})") from error
            self.check()
            yield

    def release(self) -> None:
        """Give the folder back, where it is still ours."""
        if self._ended.is_set():
            return
        self._ended.set()
        with contextlib.suppress(OSError), locked(_lock_of(self.folder), PATIENCE):
            if self._why_not_mine() is None:
                (self.folder / OWNER).unlink()
        if self._made:
            # Nothing was put into it, as where a run is refused.
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def __exit__(self, kind: object, *_: object) -> None:
        # A signal here would leave a folder that is nobody's as that of a process which other machines wait for.
        with signals.put_off(then_end=kind is None):
            self.release()


def claim(folder: Path, *, take_over: bool = False, warn: Callable[[str], None] | None = None) -> Owner:
    """Make a folder this process's own, atomically: of two at once one gets it.

    Args:
        folder: is made where it is not there.
        take_over: also from an owner that seems to live, which then ends at its next heartbeat or checkpoint; one
            that is saving may do so, for `PATIENCE` seconds.
        warn: called with a line where it is taken from another owner, dead or not.

    Raises:
        InputError: it has an owner that lives; says who, since when it was not heard, and the way on.
        StorageError: it cannot be written.
    """
    process = os.getpid()
    mine = _Record(socket.gethostname(), process, machine(), started_at(process), secrets.token_hex(8))
    made, owner = not folder.exists(), None
    try:
        with storage_errors(f"{folder}: cannot be written"):
            folder.mkdir(parents=True, exist_ok=True)
            with locked(_lock_of(folder), PATIENCE), signals.put_off():
                line = refuse_owned(folder, take_over=take_over)
                write_file(folder / OWNER, json.dumps(asdict(mine)) + "\n")
                owner = Owner(folder, mine, made)
        if line is not None and warn is not None:
            warn(line)
    except BaseException:
        # A signal among them, which waited until there was somebody to give it back.
        if owner is not None:
            owner.release()
        elif made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    return owner


def _lock_of(folder: Path) -> Path:
    return folder / f".{OWNER}.writing-lock"


def refuse_owned(folder: Path, *, take_over: bool = False) -> str | None:
    """Raise InputError where a folder has an owner that lives, and is not to be taken over; nothing is written.

    Returns:
        The line to say where it is taken from its owner; None where it has none.
    """
    found = _read(folder)
    if found is None:
        return None
    who = found.words if isinstance(found, _Record) else f"somebody ({OWNER} cannot be read)"
    dead = _is_dead(found) if isinstance(found, _Record) else None
    if dead:
        return f"{folder}: taken over from {who}, which is gone"
    silent = _silence(folder)
    if dead is None and silent > DEAD_AFTER:
        return f"{folder}: taken over from {who}, whose heartbeat has not moved for {silent / 60:.0f} minutes"
    if take_over:
        return f"{folder}: taken over from {who}, whose heartbeat moved {silent:.0f} s ago; it ends at its next one"
    waits = "" if dead is False else f" (it counts as dead when that has not moved for {DEAD_AFTER / 60:.0f} minutes)"
    raise InputError(
        f"{folder}: belongs to {who}, which is at work: its heartbeat moved {silent:.0f} s ago{waits}; wait for it, "
        "or --take-over ends it"
    )


@dataclass(frozen=True)
class SeenOwner:
    """The owner of a folder, as it looks from here.

    Attributes:
        words: who it is; silent: seconds since its heartbeat moved, by the clock of this machine.
        gone: it is dead, or counts as dead.
    """

    words: str
    silent: float
    gone: bool


def seen_owner(folder: Path) -> SeenOwner | None:
    """Who a folder belongs to, None where to nobody; nothing is written, and nothing taken over."""
    found = _read(folder)
    if found is None:
        return None
    try:
        silent = max(time.time() - (folder / OWNER).stat().st_mtime, 0.0)
    except OSError:
        silent = 0.0
    if isinstance(found, str):
        return SeenOwner("somebody", silent, silent > DEAD_AFTER)
    dead = _is_dead(found)
    return SeenOwner(found.words, silent, silent > DEAD_AFTER if dead is None else dead)


def _is_dead(record: _Record) -> bool | None:
    """Whether the owner is dead; None where that cannot be known from here."""
    if record.machine is None or record.machine != machine():
        return None
    if not is_alive(record.process):
        return True
    # An id that was used again is another process.
    return None if record.started is None else started_at(record.process) != record.started


def _silence(folder: Path) -> float:
    """Seconds since the heartbeat moved, by the clock of the file system: two hosts' clocks may differ."""
    probe = folder / f".{OWNER}.writing-{os.getpid()}-now"
    try:
        moved = (folder / OWNER).stat().st_mtime
        try:
            probe.touch()
            return max(probe.stat().st_mtime - moved, 0.0)
        finally:
            probe.unlink(missing_ok=True)
    except OSError:
        return 0.0


def _read(folder: Path) -> _Record | str | None:
    """What `owner.json` holds; its text where that is no record, None where there is none."""
    path = folder / OWNER
    try:
        text = read_bytes(path, CONFIGURATION, "who a run belongs to").decode("utf-8", "replace")
    except InputError as error:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            # That it cannot be reached does not say that it is gone.
            pass
        return str(error)
    try:
        record: Any = _Record(**parse_json(text))
        numbers = (record.process, *(() if record.started is None else (record.started,)))
        return record if all(type(one) is int for one in numbers) and isinstance(record.host, str) else text
    except (ValueError, TypeError):
        return text
