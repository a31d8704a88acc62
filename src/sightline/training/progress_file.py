"""How far a run is, in a file of its folder every few seconds, for whoever looks from elsewhere (`status`)."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from sightline.errors import StorageError
from sightline.io.atomic import write_file
from sightline.io.run_files import PROGRESS
from sightline.training.speed import Pace

_EVERY = 5.0


class ProgressFile:
    """Written after a step, where the last time was long enough ago; a disk that is full ends no run.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS
        self._written = -_EVERY

    def __call__(
        self, *, step: int, steps: int, images: int, total: int, tokens: int, loss: float | None, lr: float,
        seconds: float, pace: Pace,
    ) -> None:  # fmt: skip
        """Note where the run is after a step.

        Args:
            steps, total: that are expected in all; total counts images.
            seconds: of training, earlier sittings included.
        """
        now = time.monotonic()
        if now - self._written < _EVERY and step < steps:
            return
        self._written = now
        rates = pace.rates
        said = {
            "step": step, "steps": steps, "images": images, "total": total, "tokens": tokens, "loss": loss, "lr": lr,
            "seconds": seconds, "images_per_second": None if rates is None else rates.images,
            "tokens_per_second": None if rates is None else rates.tokens, "peak_share": pace.peak_share,
            "memory": pace.memory,
        }  # fmt: skip
        with contextlib.suppress(StorageError):
            write_file(self._path, json.dumps(said) + "\n")
