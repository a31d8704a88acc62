"""How far a run is, in a file of its folder every few seconds, for whoever looks from elsewhere (`status`)."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.errors import StorageError
from sightline.io.atomic import write_file
from sightline.io.run_files import PROGRESS

if TYPE_CHECKING:
    from sightline.training.loop import TrainProgress

_EVERY = 5.0


class ProgressFile:
    """Written after a step, where the last time was long enough ago; a disk that is full ends no run.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS
        self._written = -_EVERY

    def write(self, at: TrainProgress) -> None:
        """Note where the run is after a step."""
        now = time.monotonic()
        if now - self._written < _EVERY and at.step < at.steps:
            return
        self._written = now
        rates = at.pace.rates
        said = {
            "step": at.step, "steps": at.steps, "images": at.images, "total": at.total, "tokens": at.tokens,
            "loss": at.loss, "lr": at.lr, "seconds": at.seconds,
            "images_per_second": None if rates is None else rates.images,
            "tokens_per_second": None if rates is None else rates.tokens,
            "peak_share": at.pace.peak_share, "memory": at.pace.memory,
        }  # fmt: skip
        with contextlib.suppress(StorageError):
            write_file(self._path, json.dumps(said) + "\n")
