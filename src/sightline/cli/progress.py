"""What people see of work on stderr: bars with the expected end in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from sightline.runs.progress import Progress

if TYPE_CHECKING:
    from sightline.training.jobs import JobProgress

LATE = 2.0
"""Seconds after which a bar is shown for work that is seldom long."""
_QUIET_SECONDS = 15.0
# What the speed is taken from: the last minute, and no less than this.
_WINDOW_SECONDS, _LEAST_SECONDS = 60.0, 2.0


# So many are shown; of more, those that are done are not.
_MOST_BARS = 8


class TimeLeft:
    """How long some work will still take, by its speed in the last minute.

    What was done at the first look does not count: an earlier sitting did it, or it waited for what starts up.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, now: float, done: int) -> None:
        """Note that so much was done at a time in seconds."""
        # A few points a second are enough.
        if not self._seen or now - self._seen[-1][0] >= 0.2:
            self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW_SECONDS:
            self._seen.popleft()

    def words(self, now: float, done: int, total: int) -> str:
        """The time left, as "1:05:00" or "0:42"; "measuring" until there is a speed."""
        if done >= total:
            return "0:00"
        began, before = self._seen[0] if self._seen else (now, done)
        if now - began < _LEAST_SECONDS or done <= before:
            return "measuring"
        minutes, seconds = divmod(round((now - began) * (total - done) / (done - before)), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


@contextlib.contextmanager
def bar_of(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for work that is seldom long, shown after two seconds of it; moved on by so many."""
    with Bars(late=LATE) as bars:
        yield bars.counter(name, total)


def of_jobs(bars: Bars) -> Callable[[JobProgress], None]:
    """What shows the progress of runs side by side: a bar each, with the last loss and validation."""

    def observe(at: JobProgress) -> None:
        loss = f"loss {at.loss:.2f}" if at.loss is not None else ""
        validated = f"minival {at.validated.value:.0%}" if at.validated is not None else ""
        bars.move(f"{at.phase:<5} {at.name:<11}", at.done, at.total, *filter(None, (loss, validated)))

    return observe


class Bars(Progress):
    """Named bars, made when they are first moved. A context manager.

    Args:
        late: seconds in which nothing is shown, and what is shown after them is for a terminal alone.
    """

    def __init__(self, late: float = 0.0) -> None:
        super().__init__()
        self._console = Console(stderr=True)
        self._terminal = self._console.is_terminal
        self._progress: Any = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("left {task.fields[left]}"),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            disable=not self._terminal,
        )
        self._late, self._began = late, time.monotonic()
        self._tasks: dict[str, Any] = {}
        self._started: dict[str, float] = {}
        self._said: dict[str, float] = {}
        self._left: dict[str, TimeLeft] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        if self._tasks:
            self._progress.stop()

    def move(self, name: str, done: int, total: int, *notes: str) -> None:
        """Set a bar to `done` of `total`; of the notes behind it those are shown, from the first, that fit."""
        note = self._fitting(notes, len(name) + 2 * len(str(total)))
        now = time.monotonic()
        started = self._started.setdefault(name, now)
        known = self._left.setdefault(name, TimeLeft())
        known.look(now, done)
        left = known.words(now, done, total)
        if self._terminal:
            if name not in self._tasks:
                if self._late and (now - self._began < self._late or done >= total):
                    return
                self._progress.start()
                self._tasks[name] = self._progress.add_task(name, total=total, note=note, left=left)
            visible = done < total or len(self._tasks) <= _MOST_BARS
            self._progress.update(self._tasks[name], completed=done, total=total, note=note, left=left, visible=visible)
            return
        finished = done >= total
        if self._late or (now - self._said.setdefault(name, now) < _QUIET_SECONDS and not finished):
            return
        self._said[name] = now
        ahead = "" if finished or left == "measuring" else f", about {left} left"
        line = f"{name}: {done}/{total} after {now - started:.0f} s{ahead} {note}"
        self._console.print(line, highlight=False, soft_wrap=True)

    def _fitting(self, notes: Sequence[str], taken: int) -> str:
        # The bar, the times and what stands between take 52 columns; elsewhere than in a terminal lines are long.
        room = self._console.width - taken - 52 if self._terminal else 1000
        shown = notes[:1]
        for one in notes[1:]:
            if len(", ".join((*shown, one))) > room:
                break
            shown = (*shown, one)
        return ", ".join(shown)
