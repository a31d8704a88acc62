"""What is shown of a demonstration while it is at work: bars with curves, the expected end, and a page."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.cli.progress import Bars
from sightline.io.atomic import write_out
from sightline.reports import page, training_plots
from sightline.reports.content import LossCurve, RunSummary
from sightline.runs.report_content import read_validation
from sightline.training.estimate import Expectation

if TYPE_CHECKING:
    from sightline.training.jobs import Job, JobProgress

_PAGE_SECONDS = 20.0
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*#@"


class DemoWatch:
    """Called with the progress of each job.

    Attributes:
        expected: seconds from the start to the end, as was said after the first steps; None until then.
    """

    def __init__(self, jobs: Sequence[Job], at_once: int, bars: Bars, page: Path, *, title: str, command: str) -> None:
        self.expected: float | None = None
        self._jobs = jobs
        # Of these runs there is a curve of validation: written, or put right where it was damaged, by them.
        self._validated: set[str] = set()
        self._bars, self._page, self._title, self._command = bars, page, title, command
        self._expectation = Expectation(jobs, at_once) if jobs else None
        self._curves: dict[str, tuple[list[int], list[float]]] = {job.name: ([], []) for job in jobs}
        self._started = self._shown = time.monotonic()
        self._ascii = "utf" not in (getattr(sys.stderr, "encoding", None) or "").lower()

    def __call__(self, at: JobProgress) -> None:
        """Show how far a job is."""
        if self._expectation is None or at.name not in self._curves:
            # Of a run that seemed to be done: it was measured before its end.
            return
        self._expectation.observe(at)
        if at.loss is not None and math.isfinite(at.loss):
            images, losses = self._curves[at.name]
            images.append(at.done)
            losses.append(at.loss)
        if at.validated is not None:
            self._validated.add(at.name)
        left = self._expectation.left()
        if left is not None and self.expected is None:
            passed = time.monotonic() - self._started
            self.expected = passed + left
            print(f"Expected to take {in_about(self.expected)} here in all, until about {until(left)}.", flush=True)
        self._bars.move(f"{at.phase:<5} {at.name:<11}", at.done, at.total, self._note(at, left))
        if time.monotonic() - self._shown >= _PAGE_SECONDS:
            self._shown = time.monotonic()
            self._write_page(left)

    def _note(self, at: JobProgress, left: float | None) -> str:
        losses = self._curves[at.name][1]
        words = [f"loss {losses[-1]:.2f} {sparkline(losses, 10, ascii_only=self._ascii)}" if losses else ""]
        if at.validated is not None:
            words.append(f"minival {at.validated.value:.0%}")
        if left is not None:
            words.append(f"all done {until(left)}")
        return " ".join(word for word in words if word)

    def _write_page(self, left: float | None) -> None:
        runs = []
        for job in self._jobs:
            validation = read_validation(job.out) if job.name in self._validated else ()
            loss = LossCurve(*self._curves[job.name])
            runs.append(RunSummary(job.name, str(job.train.encoding), loss=loss, validation=validation))
        state = "" if left is None else f"{in_about(left).capitalize()} left, until {until(left)}."
        said = {"title": self._title, "state": state, "command": self._command}
        curves = training_plots.figures(runs, [run.name for run in runs])
        write_out(self._page, page.render("working.html", **said, **curves))


def sparkline(values: Sequence[float], width: int = 12, *, ascii_only: bool = False) -> str:
    """The means of `width` equal parts of finite `values`, from the lowest to the highest character; "" of none."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [number * len(values) // count for number in range(count + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    marks = _ASCII if ascii_only else _BLOCKS
    scale = (len(marks) - 1) / (high - low) if high > low else 0.0
    return "".join(marks[round((mean - low) * scale)] for mean in means)


def in_about(seconds: float) -> str:
    """ "about 40 seconds", "about 2.5 minutes", "about 12 minutes"."""
    if seconds < 90:
        return f"about {max(round(seconds / 5) * 5, 5)} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds >= 570 else f"about {round(seconds / 30) / 2:g} minutes"


def until(left: float) -> str:
    """The time of day in so many seconds."""
    return (datetime.now() + timedelta(seconds=left)).strftime("%H:%M")
