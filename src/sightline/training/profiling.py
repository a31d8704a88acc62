"""Where the time of a training goes: ten of its steps by their phases, and by torch's profiler."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

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
_ON_GPU: ContextVar[bool] = ContextVar("on_gpu", default=False)


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Around a phase of a step, one of `PHASES`; it waits for a GPU whose steps are profiled."""
    with record_function(name):
        yield
        if _ON_GPU.get():
            torch.cuda.synchronize()


def waited_for(items: Iterable[T]) -> Iterator[T]:
    """The same items, none of which is None; each is waited for."""
    found = iter(items)
    while True:
        with phase("waiting for data"):
            item = next(found, None)
        if item is None:
            return
        yield item


class Profiler(contextlib.AbstractContextManager["Profiler"]):
    """Profiles some steps of a run after the first ones; told of every step, it changes no result and ends no run.
    Left, it writes what was found, but where an exception ends the run.

    Args:
        out: the folder of the run, below which it writes; device: where the run computes.
        warn: called with a line where there is no profile: the run is over too early, or it cannot be written.
    """

    def __init__(self, out: Path, device: torch.device, warn: Callable[[str], None] = unheard) -> None:
        self._warn, self._out, self._on_gpu, self._steps = warn, out / PROFILE, device.type == "cuda", 0
        self._hardware = machine.hardware_name(device)
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        steps = schedule(wait=WARM - 1, warmup=1, active=STEPS, repeat=1)
        self._profile: Any = profile(activities=kinds, schedule=steps, on_trace_ready=self._write)

    def __enter__(self) -> Profiler:
        self._profile.start()
        return self

    def after_step(self) -> None:
        """A step is done: those after the first ones are profiled."""
        self._steps += 1
        _ON_GPU.set(self._on_gpu and WARM <= self._steps < WARM + STEPS)
        self._profile.step()

    def __exit__(self, kind: object, *_: object) -> None:
        _ON_GPU.set(False)
        if kind is not None:
            self._profile.on_trace_ready = None
        self._profile.stop()
        if kind is None and self._steps <= WARM:
            self._warn(f"--profile: there is none, of {self._steps} steps (expected at least {WARM + 1})")

    def _write(self, found: Any) -> None:
        steps, times = min(self._steps - WARM, STEPS), found.key_averages()
        if steps < 1:
            return
        # A GPU has rows of the same names, without time of the CPU.
        seconds = {one.key: one.cpu_time_total / 1e6 for one in times if one.device_type.name == "CPU"}
        whole, phases = seconds["ProfilerStep*"], {name: seconds.get(name, 0.0) for name in PHASES}
        phases["the rest"] = max(whole - sum(phases.values()), 0.0)
        own = "self_device_time_total" if self._on_gpu else "self_cpu_time_total"
        operators = [
            {"operator": one.key, "ms": getattr(one, own) / 1e3 / steps, "calls": one.count / steps}
            for one in times
            if one.key not in PHASES and not one.key.startswith("ProfilerStep")
        ]
        row = {
            "profiled_steps": steps, "seconds": whole, "phases": {name: one / whole for name, one in phases.items()},
            # Those that took longest by themselves.
            "operators": sorted(operators, key=lambda one: -one["ms"])[:_OPERATORS],
            "threads": torch.get_num_threads(), "hardware": self._hardware, "torch": torch.__version__,
            "commit": machine.git_commit(),
        }  # fmt: skip
        trace = self._out / TRACE
        try:
            with storage_errors(f"{trace}: cannot be written"):
                self._out.mkdir(exist_ok=True)
                # What hinders it torch prints, and goes on.
                trace.open("ab").close()
                found.export_chrome_trace(str(trace))
            write_file(self._out / ROW, json.dumps(row) + "\n")
        except StorageError as error:
            self._warn(f"--profile: {error}; the run goes on without it")
