"""SIGINT and SIGTERM, for the command line: an end with one line, at once or when a training step is done. No torch."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from sightline.errors import StoppedError

_HEEDED = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends what is going on as Ctrl-C does."""


class _Heard:
    """What this process was told, and what it does about it."""

    first: int | None = None
    # How many `deferred` are open, or were left by what ends the process, and how many `put_off`; whether nothing has
    # begun that would need an end; whether the process ends with it.
    deferred = 0
    put_off = 0
    idle = False
    own_process = False
    # What goes on with the work that was ended; whether the line that says so is being written.
    way_on = ""
    telling = False


def exit_code() -> int:
    """The exit code for the signal that came first: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + (_Heard.first or signal.SIGINT)


def heard() -> bool:
    """Whether a signal came."""
    return _Heard.first is not None


def end_if_heard() -> None:
    """End what is going on where a signal came that was put off; raises KeyboardInterrupt."""
    if heard():
        raise KeyboardInterrupt if _Heard.first == signal.SIGINT else Terminated


def words() -> str:
    """What it did, in a word."""
    return "terminated" if _Heard.first == signal.SIGTERM else "interrupted"


def last_words() -> str:
    """The line that such an end is told by, with the way on where there is one, also where another signal came before
    that was told; from here on no signal does anything."""
    _Heard.telling = True
    return f"{words()}; {_Heard.way_on}" if _Heard.way_on else words()


def _hear(number: int, _: object) -> None:
    if _Heard.telling:
        return
    again = _Heard.first is not None
    _Heard.first = _Heard.first or number
    if _Heard.own_process:
        # An exception that hits a destructor is lost there, and nobody wants to read of it.
        sys.unraisablehook = lambda _: None
    if _Heard.idle:
        # Importing: an exception would pass through code that was never made for one.
        os.write(2, f"sightline: {words()}\n".encode())
        os._exit(exit_code())
    if _Heard.put_off or (_Heard.deferred and not (again and number == signal.SIGINT)):
        return
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def listen() -> dict[int, object]:
    """Heed both signals from here on; returns what was done about them before. In the main thread alone."""
    _Heard.first, _Heard.way_on, _Heard.telling = None, "", False
    if threading.current_thread() is not threading.main_thread():
        return {}
    # What started this process may have had it ignore one, as `nohup` does.
    return {
        number: signal.signal(number, _hear) for number in _HEEDED if signal.getsignal(number) is not signal.SIG_IGN
    }


@contextlib.contextmanager
def listening(*, own_process: bool) -> Iterator[None]:
    """Heed both signals while inside.

    Args:
        own_process: nothing has begun yet, and the process ends afterwards: until `begun` a signal ends it at once,
            and what comes at the end is passed over.
    """
    earlier, before = _Heard.first, listen()
    _Heard.idle = _Heard.own_process = own_process
    try:
        yield
    finally:
        _Heard.idle = _Heard.own_process = False
        if own_process and heard() and "multiprocessing" in sys.modules:
            # Workers leave signals to this process, which would wait for them where it was interrupted in ending them.
            # Of their end nobody is told: torch's loaders raise it wherever this process is by then.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for child in sys.modules["multiprocessing"].active_children():
                child.kill()
        for number, action in before.items():
            signal.signal(number, signal.SIG_IGN if own_process else action)  # pyright: ignore[reportArgumentType]
        if not own_process:
            # What ended a command that was called from Python says nothing of what its caller does next.
            _Heard.first = earlier


def begun() -> None:
    """From here on an end may need some tidying: a signal raises KeyboardInterrupt."""
    _Heard.idle = False


@contextlib.contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Inside, a signal is noted and nothing else, until a second SIGINT, which raises KeyboardInterrupt; also after it,
    in a process that a StoppedError by a signal ends.

    Yields:
        Whether one came.
    """
    _Heard.deferred += 1
    try:
        yield heard
    except StoppedError as error:
        # The process ends with that line: told again, as by a launcher whose other processes are gone, it does no less.
        _Heard.deferred += _Heard.own_process and error.by_signal
        raise
    finally:
        _Heard.deferred -= 1


@contextlib.contextmanager
def put_off(*, then_end: bool = True) -> Iterator[None]:
    """Inside, signals wait, a second SIGINT too: for what takes a moment and is not to stay half done.

    Args:
        then_end: by KeyboardInterrupt where the first signal came inside, and nothing defers it.
    """
    before = heard()
    _Heard.put_off += 1
    try:
        yield
    finally:
        _Heard.put_off -= 1
    if then_end and not before and not _Heard.put_off and not _Heard.deferred:
        end_if_heard()


@contextlib.contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """Add the command that goes on to what ends the work inside."""
    said = f"go on with: {command}"
    try:
        yield
    except StoppedError as error:
        raise StoppedError(f"{error}; {said}", error.exit_code if error.by_signal else None) from None
    except KeyboardInterrupt as error:
        _Heard.way_on = said
        raise type(error)(said) from None


def setup_worker_signals() -> None:
    """Ignore both signals in a process that another one started, and end with that one, however it ends."""
    for number in _HEEDED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        # PR_SET_PDEATHSIG of Linux.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Keep SIGINT waiting while inside; processes that are started inside begin so, until `let_through`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """End what `held_back` began for a process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
