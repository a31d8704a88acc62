"""Which processes live, and how one ends with another. No torch here."""

from __future__ import annotations

import os
import threading
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
