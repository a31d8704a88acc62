"""How long jobs side by side will still take here, from what they have done so far on the cores that they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from sightline.analysis.flops import forward_flops
from sightline.data.open import open_source
from sightline.distributed import machine
from sightline.evaluation.measure import planned_passes
from sightline.models import make_model
from sightline.training.jobs import Job, JobProgress
from sightline.training.plan import EpochPlan, SizeSchedule
from sightline.training.prepare import model_config_of, resolve

# The first steps of each job warm up, and jobs begin one after the other; then a rate needs some seconds.
_WARM_STEPS, _LEAST_SECONDS = 3, 10.0
# The time of an operation of a test over that of one of training: large scenes take long to draw. Two demonstrations
# (quick and whole, of three jobs on two cores) had 2.3 and 2.1.
_TEST = 2.2


class Expectation:
    """The time that is left, from real steps: it is told of every step, and knows the operations of all.

    Attributes:
        total: the operations of all jobs; one of a test counts as the time that it takes, in operations of a training.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        at_once: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        begun: int | None = None,
    ) -> None:
        """Count the operations of all jobs; those that are done already are to be left out.

        Args:
            at_once: how many of them this machine does at full speed.
            begun: how many begin at once; all unless given.
        """
        self._clock = clock
        self._at_once = max(min(at_once, len(jobs)), 1)
        self._begun = min(begun or len(jobs), len(jobs))
        self._parts = {job.name: _parts(job) for job in jobs}
        self._missing = {name: sum(work for _, _, work in parts) for name, parts in self._parts.items()}
        self._steps = dict.fromkeys(self._parts, 0)
        self._began, self.total = 0.0, sum(self._missing.values())
        self._started: float | None = None

    def observe(self, at: JobProgress) -> None:
        """A job has come so far."""
        self._missing[at.name] = _missing(self._parts[at.name], at)
        self._steps[at.name] += 1
        if self._started is None and sum(steps >= _WARM_STEPS for steps in self._steps.values()) >= self._begun:
            # What was done before, in an earlier sitting too, says nothing of the speed from here on.
            self._started, self._began = self._clock(), sum(self._missing.values())

    @property
    def done(self) -> float:
        """The share of all operations, 0 to 1."""
        return 1 - sum(self._missing.values()) / self.total if self.total else 1.0

    def left(self) -> float | None:
        """Seconds until all are done; None before enough of it was seen."""
        if self._started is None:
            return None
        missing = self._missing.values()
        passed, spent = self._clock() - self._started, self._began - sum(missing)
        if passed < _LEAST_SECONDS or not spent:
            return None
        rate = spent / passed
        # The last one alone has only its own cores.
        return max(sum(missing) / rate, max(missing) * self._at_once / rate)


def _parts(job: Job) -> list[tuple[str, int, float]]:
    """(phase, images, operations of them) of the training, and of each measurement in its order."""
    source = open_source(job.train.data)
    # The weights that it is to begin with may not be there yet; they change no operation.
    asked = job.train if job.after is None else replace(job.train, init_from=None)
    config = resolve(asked, source, machine.resolve_device(job.device))
    model = model_config_of(config, source)
    assert config.resolution is not None
    assert config.images is not None
    plan = EpochPlan.of(config, source.length("train"))
    trained = SizeSchedule.of(config, model).spent(plan, plan.steps).flops
    with torch.device("meta"):
        made = make_model(model)
    parts = [("train", config.images, float(trained))]
    for data, measured in job.measurements:
        for shown, count in planned_passes(open_source(data), made, measured, config.resolution):
            patches = model.grid_of(shown).cells if isinstance(shown, int) else shown.patches
            parts.append(("test", count, _TEST * count * forward_flops(model, [patches])))
    return parts


def _missing(parts: list[tuple[str, int, float]], at: JobProgress) -> float:
    """The operations that a job has still to do; its tests come after its training."""
    missing, images = 0.0, at.done
    for phase, count, work in parts:
        if phase == at.phase:
            missing += work * (1 - min(images / max(count, 1), 1.0))
            images = max(images - count, 0)
        elif phase == "test":
            missing += work
    return missing
