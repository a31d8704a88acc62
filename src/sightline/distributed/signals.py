"""SIGINT and SIGTERM, for the command line: the first lets a training step end and be saved, a second SIGINT ends at
once. No torch."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sightline.distributed.ranks import is_distributed_launch
from sightline.errors import StoppedError

_HEEDED = (signal.SIGINT, signal.SIGTERM)


class _Process:
    """What this process was told, what goes on with its command, and whether it ends with that."""

    first: int | None = None
    hint = ""
    importing = False
    ends = False


def heard() -> bool:
    """Whether a signal came."""
    return _Process.first is not None


def exit_code() -> int:
    """The exit code for the signal that came first: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + (_Process.first or signal.SIGINT)


def last_words(said: str = "") -> str:
    """The line that a process ends with after a signal: what it did, and the command that goes on."""
    said = said or ("terminated" if _Process.first == signal.SIGTERM else "interrupted")
    return f"{said}; go on with: {_Process.hint}" if _Process.hint else said


def _interrupt(number: int, _: object) -> None:
    _Process.first = _Process.first or number
    if _Process.importing:
        # An exception would pass through code that was never made for one.
        os.write(2, f"sightline: {last_words()}\n".encode())
        os._exit(exit_code())
    raise KeyboardInterrupt


class InterruptFlag:
    """Set by the first signal. A SIGINT after it raises KeyboardInterrupt, once: what it ends is not hit again."""

    def __init__(self) -> None:
        self._set = self._raised = False

    def is_set(self) -> bool:
        """Whether a signal came."""
        return self._set

    def hear(self, number: int, _: object = None) -> None:
        """Take a signal."""
        _Process.first = _Process.first or number
        if self._set and number == signal.SIGINT and not self._raised:
            self._raised = True
            raise KeyboardInterrupt
        self._set = True


def _handle(handler: Callable[[int, Any], None]) -> dict[int, Any]:
    """Have both signals handled, but for what the starter of this process had it ignore, as `nohup` does; returns the
    handlers before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {one: signal.signal(one, handler) for one in _HEEDED if signal.getsignal(one) is not signal.SIG_IGN}


def _restore(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def handle_signals(*, own_process: bool) -> Iterator[None]:
    """Inside, both signals raise KeyboardInterrupt.

    Args:
        own_process: the process ends afterwards, and what comes then is passed over; until `imported` is called a
            signal ends it with a line.
    """
    _Process.first, _Process.hint, _Process.importing, _Process.ends = None, "", own_process, own_process
    before = _handle(_interrupt)
    if own_process:
        sys.unraisablehook = _tell_unless_interrupted
    try:
        yield
    finally:
        _Process.importing = _Process.ends = False
        _restore(dict.fromkeys(before, signal.SIG_IGN) if own_process else before)
        if own_process and heard() and "multiprocessing" in sys.modules:
            # Workers ignore signals, and this process would wait for them; torch's loaders tell of each that ends.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for child in sys.modules["multiprocessing"].active_children():
                child.kill()


def _tell_unless_interrupted(unraisable: Any) -> None:
    if not heard():
        sys.__unraisablehook__(unraisable)


def imported() -> None:
    """From here on an end may need some tidying: a signal raises KeyboardInterrupt."""
    _Process.importing = False


@contextlib.contextmanager
def defer_interrupts() -> Iterator[InterruptFlag]:
    """Inside, the first signal sets the flag; where the work inside ends all the same, KeyboardInterrupt is raised."""
    flag = InterruptFlag()
    before = _handle(flag.hear)
    try:
        yield flag
    except StoppedError:
        if is_distributed_launch() or (flag.is_set() and _Process.ends):
            # It is saved; a launcher tells those that are left once more when the first of its processes ends.
            before = dict.fromkeys(before, signal.SIG_IGN)
        raise
    finally:
        _restore(before)
    if flag.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """Have `last_words` name the command that goes on, where a signal ends the work inside."""
    _Process.hint = command
    yield
    _Process.hint = ""


@contextlib.contextmanager
def block_interrupts() -> Iterator[None]:
    """Processes that are started inside never hear SIGINT, which a terminal sends to all: their parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def setup_worker_signals() -> None:
    """Ignore both signals in a process that another one started, which ends it."""
    for number in _HEEDED:
        signal.signal(number, signal.SIG_IGN)
