"""What is shown of a comparison at work: one bar for all of it, which runs are at work, and the expected end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sightline.cli.demo_watch import in_about, until
from sightline.cli.progress import Bars
from sightline.training.estimate import Expectation

if TYPE_CHECKING:
    from sightline.training.jobs import Job, JobProgress

_PHASES = {"train": "trains", "test": "is tested"}


class CompareWatch:
    """Called with the progress of each job.

    Attributes:
        expected: seconds from the start to the end, as was said after the first steps; None until then.
    """

    def __init__(self, jobs: Sequence[Job], at_once: int, bars: Bars) -> None:
        self.expected: float | None = None
        self._bars, self._started = bars, time.monotonic()
        self._expectation = Expectation(jobs, at_once, begun=at_once)
        self._at_work: dict[str, str] = {}
        self._names = {job.name for job in jobs}

    def __call__(self, at: JobProgress) -> None:
        """Show how far all of it is."""
        if at.name not in self._names:
            return
        self._expectation.observe(at)
        left = self._expectation.left()
        if left is not None and self.expected is None:
            self.expected = time.monotonic() - self._started + left
            print(f"Expected to take {in_about(self.expected)} here in all, until about {until(left)}.", flush=True)
        self._at_work[at.name] = f"{at.name} {_PHASES[at.phase]}, {100 * at.done // max(at.total, 1)} %"
        said = list(self._at_work.values())
        if at.done >= at.total and at.phase == "test":
            del self._at_work[at.name]
        ends = [] if left is None else [f"all done {until(left)}"]
        self._bars.move("comparison, in %", int(100 * self._expectation.done), 100, *said, *ends)
