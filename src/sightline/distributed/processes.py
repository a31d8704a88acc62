"""Which processes live, and a short lock between those that change one file. No torch here."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

PATIENCE = 1.0
"""Seconds within which a process that is killed has closed all its files."""


def is_alive(process: int) -> bool:
    """Whether there is a process of that id on this machine, whoever it is."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def started_at(process: int) -> int | None:
    """When a process began, in ticks since the machine did; None where there is none, it has ended, or is not told.

    With the id it names one process: ids are used again, beginnings are not.
    """
    try:
        # The second field is the program's name in brackets, which may hold anything.
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def machine() -> str | None:
    """What the processes that can see one another share: a boot of a machine and a space of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def exit_with_parent() -> None:
    """End this process, which `multiprocessing` started, as soon as the one that asked for it is gone, also where that
    is not the one that made it, as with a fork server; killed, it could not say so. Calls return at once.

    A connection that is cut then is no fault that a thread of this process would have to tell.
    """
    import multiprocessing
    import sys

    parent, tell = multiprocessing.parent_process(), sys.excepthook
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    def tell_unless_gone(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, ConnectionError | EOFError):
            # Of a process that dies its files are closed one after the other.
            parent.join(PATIENCE)
            if not parent.is_alive():
                os._exit(1)
        tell(kind, error, trace)

    sys.excepthook = tell_unless_gone
    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def locked(path: Path, patience: float = math.inf) -> Iterator[bool]:
    """Hold the lock file `path` while inside; others wait. It goes with its holder, killed or not.

    Args:
        patience: seconds after which it goes on without the lock: its holder hangs.

    Yields:
        Whether the lock is held.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        mine = _lock(descriptor, patience)
        with contextlib.suppress(OSError):
            if not mine or os.path.samestat(os.stat(path), os.fstat(descriptor)):
                break
        # The one before deleted it at its end: this was a lock on nothing.
        os.close(descriptor)
    try:
        yield mine
    finally:
        if mine:
            with contextlib.suppress(OSError):
                os.unlink(path)
        os.close(descriptor)


def _lock(descriptor: int, patience: float) -> bool:
    """Wait for the lock on an open file; False where that took too long."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
            continue
        except OSError:
            # A file system without locks is no reason to fail: what they guard is then as it was without them.
            pass
        return True
