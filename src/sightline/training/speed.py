"""How fast a run is, by its last minute, and what share that is of what its machine can do."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.distributed import machine
from sightline.distributed.ranks import Ranks

_WINDOW = 60.0
# A run that is over sooner is not kept waiting to know what the machine can do.
_PATIENCE = 10.0
_SIDE = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True)
class Rates:
    """A second, by the last minute: images shown, tokens through the trunk, operations of training."""

    images: float
    tokens: float
    flops: float


@dataclass(frozen=True)
class Pace:
    """What is known of a run's speed after a step.

    Attributes:
        rates: None until there are some.
        peak_share: of the operations a second that a matrix product reaches here in the run's precision, on all of its
            processes; None until it was measured, and where several processes share processors.
        memory: the most that the first process, or its GPU, has held so far, in bytes.
    """

    rates: Rates | None
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
        now = time.monotonic()
        self._seen.append((now, images, tokens, flops))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW:
            self._seen.popleft()
        (began, *before), (ended, *after) = self._seen[0], self._seen[-1]
        rates = None
        if ended > began and after[0] > before[0]:
            rates = Rates(*((late - early) / (ended - began) for early, late in zip(before, after, strict=True)))
        # Processes that share processors have no peak of their own.
        if (
            self._peak is None
            and now - self._began > _PATIENCE
            and (self._ranks.size == 1 or self._device.type == "cuda")
        ):
            self._peak = measure_peak_flops(self._device, self._precision) * self._ranks.size
        share = rates.flops / self._peak if rates is not None and self._peak is not None else None
        return Pace(rates, share, machine.peak_memory(self._device))


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
    side = _SIDE.get(device.type, _SIDE["cpu"])
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    best = 0.0
    with torch.no_grad():
        try:
            matrix, out = (torch.ones(side, side, dtype=kind, device=device) for _ in range(2))
        except torch.OutOfMemoryError:
            return math.inf
        for _ in range(4):
            _synchronise(device)
            began = time.perf_counter()
            torch.mm(matrix, matrix, out=out)
            _synchronise(device)
            best = max(best, 2 * side**3 / (time.perf_counter() - began))
    return best


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
