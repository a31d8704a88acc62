"""One process at a time in the folder of a run: a file lock, which goes with its holder, killed or not."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from sightline.errors import InputError, StorageError
from sightline.io.atomic import storage_errors
from sightline.io.run_files import LOCK

# Seconds in which processes that were killed close their files.
_PATIENCE = 2.0
_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextlib.contextmanager
def locked(path: Path, timeout: float = -1, warn: Callable[[str], None] = lambda _: None) -> Iterator[os.stat_result]:
    """Hold the lock file `path` while inside, and delete it at the end.

    Args:
        timeout: seconds to wait for it; -1 waits until it is free.
        warn: called with a line where the file system has no locks; then it goes on without.

    Yields:
        Which file it is.

    Raises:
        Timeout: another process holds it.
        OSError: it cannot be made.
    """
    # Whoever ends may be another thread; a lock that hangs on a file's being there would outlive its holder.
    lock = FileLock(path, timeout, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        warn(f"{path}: this file system has no locks; that another process works here too would not be noticed")
    mine = path.stat()
    try:
        yield mine
    finally:
        with contextlib.suppress(OSError):
            # Whoever waits for the file that is gone makes a new one.
            if lock.is_locked and os.path.samestat(path.stat(), mine):
                path.unlink()
        lock.release()


class RunLock(contextlib.AbstractContextManager["RunLock"]):
    """The folder of a run, made where it is not there, as this process's own; processes that it forks do not hold it.

    Raises, where it is entered:
        InputError: another process holds it; says which, where, and since when.
        StorageError: it cannot be written.
    """

    def __init__(self, folder: Path, warn: Callable[[str], None] = lambda _: None) -> None:
        self.folder, self._file, self._warn = folder, folder / LOCK, warn

    def __enter__(self) -> RunLock:
        with contextlib.ExitStack() as held, storage_errors(f"{self.folder}: cannot be written"):
            if not self.folder.exists():
                held.callback(self._drop_empty)
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._mine = held.enter_context(locked(self._file, _PATIENCE, self._warn))
            except Timeout:
                raise _refusal(self.folder, lock_holder(self.folder) or "another process") from None
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            said = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
            self._file.write_text(json.dumps(said) + "\n", encoding="utf-8")
            self._held = held.pop_all()
        return self

    def check(self) -> None:
        """Raise StorageError where the folder was moved or deleted, or is another's by now."""
        try:
            mine = os.path.samestat(self._file.stat(), self._mine)
        except (FileNotFoundError, NotADirectoryError):
            mine = False
        except OSError:
            # Over a network it may be away for a moment; what cannot be written then says so itself.
            return
        if not mine:
            raise StorageError(
                f"{self.folder}: it was moved or deleted while the run was going on, and nothing more is written; its "
                "last checkpoint is whole where the folder is now"
            )

    def _drop_empty(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def __exit__(self, *_: object) -> None:
        self._held.close()


def lock_holder(folder: Path, patience: float = 0.0) -> str | None:
    """Who holds the folder of a run, "process 123 on HOST since ..."; None for nobody, or where the file
    system has no locks. Nothing is written.

    Args:
        patience: seconds in which it may become free.
    """
    for mode in (os.O_RDWR, os.O_RDONLY):
        # Of another user it may be for reading alone, with which a network's file system locks nothing.
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / LOCK, mode | os.O_NONBLOCK)
            break
    else:
        return None
    try:
        deadline = time.monotonic() + patience
        while not lock_descriptor(descriptor, blocking=False):
            if time.monotonic() >= deadline:
                return _words(os.read(descriptor, 1000))
            time.sleep(0.05)
    except OSError:
        # Of a file system without locks nobody can tell.
        return None
    finally:
        os.close(descriptor)
    return None


def _words(record: bytes) -> str:
    try:
        said = json.loads(record)
        return "process {process} on {host} since {since}".format(**said)
    except (ValueError, TypeError, LookupError):
        return "another process"


def refuse_locked(folder: Path) -> None:
    """Raise InputError where another process holds the folder of a run; nothing is written."""
    holder = lock_holder(folder, _PATIENCE)
    if holder is not None:
        raise _refusal(folder, holder)


def _refusal(folder: Path, holder: str) -> InputError:
    return InputError(f"{folder}: locked by {holder}; wait for it or end it")
