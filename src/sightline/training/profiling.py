"""Where the time of a training goes: ten of its steps by their phases, and by torch's profiler."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from sightline.distributed import machine
from sightline.errors import StorageError
from sightline.io.atomic import storage_errors, write_file
from sightline.io.run_files import PROFILE
from sightline.training.log import unheard

TRACE, ROW = "trace.json", "profile.json"
PHASES = ("waiting for data", "forward", "backward", "optimizer", "validating", "saving", "the rest")
# The first steps warm up.
WARM, STEPS = 5, 10
_OPERATORS = 12

T = TypeVar("T")
_ACTIVE: ContextVar[Profile | None] = ContextVar("profile", default=None)


class Profile:
    """Profiles some steps of a run after the first ones; told of every step, it changes no result and ends no run.

    Attributes:
        row: what was found, once that is so; None before.
    """

    def __init__(self, out: Path, device: torch.device, warn: Callable[[str], None] = unheard) -> None:
        """
        Args:
            out: the folder of the run, below which it writes; device: where the run computes.
            warn: called with a line where there is no profile: the run is over too early, or it cannot be written.
        """
        self.row: dict[str, Any] | None = None
        self._warn, self._closed = warn, False
        self._out, self._device, self._steps = out / PROFILE, device, 0
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._profile: Any = profile(activities=kinds)
        self._seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._began = 0.0

    def after_step(self) -> None:
        """A step is done: those after the first ones are profiled."""
        self._steps += 1
        if self._steps == WARM:
            self._synchronise()
            self._profile.start()
            _ACTIVE.set(self)
            self._began = time.perf_counter()
        elif self._steps == WARM + STEPS:
            self.close()

    def close(self) -> None:
        """End the profile, after as many steps as there were, and write what was found."""
        if self._closed:
            return
        self._closed = True
        steps = self._steps - WARM
        if steps < 1:
            self._warn(
                f"--profile: there is none, of {self._steps} steps; profiled are {STEPS} after the first {WARM} "
                f"(expected at least {WARM + 1})"
            )
            return
        self._synchronise()
        whole = time.perf_counter() - self._began
        _ACTIVE.set(None)
        self._profile.stop()
        self._seconds["the rest"] = max(whole - sum(self._seconds.values()), 0.0)
        self.row = {
            "profiled_steps": steps,
            "seconds": whole,
            "phases": {name: seconds / whole for name, seconds in self._seconds.items()},
            "operators": self._operators(),
            "threads": torch.get_num_threads(),
            "hardware": machine.hardware_name(self._device),
            "torch": torch.__version__,
            "commit": machine.git_commit(),
        }
        trace = self._out / TRACE
        try:
            with storage_errors(f"{trace}: cannot be written"):
                self._out.mkdir(exist_ok=True)
                # What hinders it torch prints, and goes on.
                trace.open("ab").close()
                self._profile.export_chrome_trace(str(trace))
            write_file(self._out / ROW, json.dumps(self.row) + "\n")
        except StorageError as error:
            self._warn(f"--profile: {error}; the run goes on without it")

    def give_up(self) -> None:
        """End the profile of a run that ended before it; nothing is written."""
        if not self._closed and _ACTIVE.get() is self:
            _ACTIVE.set(None)
            self._profile.stop()

    def _operators(self) -> list[dict[str, Any]]:
        """The operators that took longest by themselves: milliseconds a step, and how often in one."""
        on_gpu = self._device.type == "cuda"
        steps = self._steps - WARM
        found = [
            {
                "operator": one.key,
                "ms": (one.self_device_time_total if on_gpu else one.self_cpu_time_total) / 1e3 / steps,
                "calls": one.count / steps,
            }
            for one in self._profile.key_averages()
            if one.key not in PHASES
        ]
        return sorted(found, key=lambda one: -one["ms"])[:_OPERATORS]

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        began = time.perf_counter()
        try:
            with record_function(name):
                yield
                self._synchronise()
        finally:
            self._seconds[name] += time.perf_counter() - began

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    """Around a phase of a step, one of `PHASES`; nothing where no step is profiled."""
    active = _ACTIVE.get()
    return contextlib.nullcontext() if active is None else active.phase(name)


def waited_for(items: Iterable[T]) -> Iterator[T]:
    """The same items, each of which is waited for."""
    found = iter(items)
    while True:
        with phase("waiting for data"):
            item = next(found, _NONE)
        if item is _NONE:
            return
        yield item  # pyright: ignore[reportReturnType]  # it is none of them


_NONE = object()
