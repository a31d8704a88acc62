"""Progress for people: bars with the expected end in a terminal, a line now and then elsewhere. On stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

_QUIET_SECONDS = 15.0


class Bars:
    """Named bars, made when they are first moved. A context manager."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._terminal = self._console.is_terminal
        self._progress: Any = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            disable=not self._terminal,
        )
        self._tasks: dict[str, Any] = {}
        self._started: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def __enter__(self) -> Bars:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def move(self, name: str, done: int, total: int, note: str = "") -> None:
        """Set a bar to `done` of `total`."""
        now = time.monotonic()
        started = self._started.setdefault(name, now)
        if self._terminal:
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=total, note=note)
            self._progress.update(self._tasks[name], completed=done, total=total, note=note)
            return
        finished = done >= total
        if now - self._said.setdefault(name, now) < _QUIET_SECONDS and not finished:
            return
        self._said[name] = now
        passed = now - started
        left = "" if finished or not done else f", about {passed * (total - done) / done:.0f} s left"
        self._console.print(
            f"{name}: {done}/{total} after {passed:.0f} s{left} {note}", highlight=False, soft_wrap=True
        )
