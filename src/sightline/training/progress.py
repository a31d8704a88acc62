"""How far and how fast a run is: by its last minute, what share that is of what its machine can do, and in a file every
few seconds for whoever looks from elsewhere (`status`)."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sightline.distributed import machine
from sightline.distributed.ranks import Ranks
from sightline.errors import StorageError
from sightline.io.atomic import write_file
from sightline.io.run_files import PROGRESS

if TYPE_CHECKING:
    from sightline.training.loop import TrainProgress

_WINDOW, _EVERY = 60.0, 5.0
# A run that is over sooner is not kept waiting to know what the machine can do.
_PATIENCE = 10.0


@dataclass(frozen=True)
class Pace:
    """What is known of a run's speed after a step.

    Attributes:
        images_per_second, tokens_per_second: shown, and through the trunk, in the last minute; None until there are
            some.
        peak_share: of the operations a second that a matrix product reaches here in the run's precision, on all of its
            GPUs; None until it was measured, and on a CPU.
        memory: the most that the first process, or its GPU, has held so far, in bytes.
    """

    images_per_second: float | None
    tokens_per_second: float | None
    peak_share: float | None
    memory: int


class Throughput:
    """Told of every step."""

    def __init__(self, device: torch.device, precision: str, ranks: Ranks) -> None:
        self._device, self._precision, self._ranks = device, precision, ranks
        self._peak: float | None = None
        self._seen: deque[tuple[float, int, int, int]] = deque()
        self._began = time.monotonic()

    def after(self, images: int, tokens: int, flops: int) -> Pace:
        """What is known once a run has cost so much, earlier sittings included."""
        now, memory = time.monotonic(), machine.peak_memory(self._device)
        self._seen.append((now, images, tokens, flops))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW:
            self._seen.popleft()
        if self._peak is None and self._device.type != "cpu" and now - self._began > _PATIENCE:
            self._peak = measure_peak_flops(self._device, self._precision) * self._ranks.size
        (began, *before), (ended, *after) = self._seen[0], self._seen[-1]
        if ended == began or after[0] == before[0]:
            return Pace(None, None, None, memory)
        rates = [(late - early) / (ended - began) for early, late in zip(before, after, strict=True)]
        return Pace(rates[0], rates[1], None if self._peak is None else rates[2] / self._peak, memory)


class ProgressFile:
    """Written after a step, where the last time was long enough ago; a disk that is full ends no run.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._written = folder / PROGRESS, -_EVERY

    def write(self, at: TrainProgress) -> None:
        """Note where the run is after a step."""
        now = time.monotonic()
        if now - self._written < _EVERY and at.step < at.steps:
            return
        self._written = now
        said = {
            "step": at.step, "steps": at.steps, "images": at.images, "total": at.total, "tokens": at.tokens,
            "loss": at.loss, "lr": at.lr, "seconds": at.seconds, **asdict(at.pace),
        }  # fmt: skip
        with contextlib.suppress(StorageError):
            write_file(self._path, json.dumps(said) + "\n")


def read_later(numbers: Tensor) -> Callable[[], list[float]]:
    """A function that gives numbers as they are now; on a GPU it waits for them only when it is called."""
    if numbers.device.type != "cuda":
        return numbers.tolist
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    host.copy_(numbers, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()

    def read() -> list[float]:
        copied.synchronize()
        return host.tolist()

    return read


def measure_peak_flops(device: torch.device, precision: str) -> float:
    """Operations a second of a large matrix product in a precision, the best of three: about a tenth of a second.

    Without bound where there is no memory left for it: a run is not ended for that.
    """
    side = 8192 if device.type == "cuda" else 1024
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    try:
        matrix, out = (torch.ones(side, side, dtype=kind, device=device) for _ in range(2))
    except torch.OutOfMemoryError:
        return math.inf
    ended = []
    for _ in range(5):
        torch.mm(matrix, matrix, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        ended.append(time.perf_counter())
    return 2 * side**3 / min(late - early for early, late in itertools.pairwise(ended))
