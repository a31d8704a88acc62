"""Which processes live, and how one ends with another. No torch here."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType


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

    A connection that is cut is not told here: the other end says why.
    """
    import multiprocessing
    import sys

    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, ConnectionError | EOFError):
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = tell
    threading.Thread(target=wait, daemon=True).start()
