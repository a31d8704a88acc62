"""How long jobs side by side will still take here, from what they have done so far on the cores that they share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from sightline.training.jobs import Job, JobProgress

# The first steps of each job warm up, and jobs begin one after the other; then a rate needs some seconds.
_WARM_STEPS, _LEAST_SECONDS = 3, 10.0
# The part of a job that its training is; the rest are its tests. Demonstrations have about that.
_TRAINING = 0.7


class Expectation:
    """The time that is left, from real steps: it is told of every step.

    Args:
        jobs: those that are not done yet; at_once: how many of them this machine does at full speed.
        begun: how many begin at once; all unless given.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        at_once: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        begun: int | None = None,
    ) -> None:
        self._clock, self._at_once = clock, max(min(at_once, len(jobs)), 1)
        self._begun = min(begun or len(jobs), len(jobs))
        # About what each takes: as many patches as its training shows.
        self._work = {job.name: (job.train.images or 1) * (job.train.resolution or 1) ** 2 for job in jobs}
        self._missing: dict[str, float] = dict(self._work)
        self._steps = Counter[str]()
        # When all were warm, and what was missing then.
        self._start: tuple[float, float] | None = None

    def observe(self, at: JobProgress) -> None:
        """A job has come so far."""
        share = min(at.done / max(at.total, 1), 1.0)
        missing = 1 - _TRAINING * share if at.phase == "train" else (1 - _TRAINING) * (1 - share)
        self._missing[at.name] = missing * self._work[at.name]
        self._steps[at.name] += 1
        if self._start is None and sum(steps >= _WARM_STEPS for steps in self._steps.values()) >= self._begun:
            # What was done before, in an earlier sitting too, says nothing of the speed from here on.
            self._start = self._clock(), sum(self._missing.values())

    @property
    def done(self) -> float:
        """The share of all work, 0 to 1."""
        return 1 - sum(self._missing.values()) / max(sum(self._work.values()), 1)

    def left(self) -> float | None:
        """Seconds until all are done; None before enough of it was seen."""
        if self._start is None:
            return None
        (started, whole), missing = self._start, self._missing.values()
        passed, spent = self._clock() - started, whole - sum(missing)
        if passed < _LEAST_SECONDS or not spent:
            return None
        # The last one alone has only its own cores.
        return max(sum(missing), max(missing) * self._at_once) * passed / spent
