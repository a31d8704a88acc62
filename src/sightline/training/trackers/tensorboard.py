"""TensorBoard's event files, in `tensorboard/` of the run's folder: `tensorboard --logdir RUN`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from sightline.io.run_files import TENSORBOARD
from sightline.training.tracking import Tracker


class TensorBoard(Tracker):
    """Through torch's `SummaryWriter`."""

    name: ClassVar[str] = "tensorboard"
    needs: ClassVar[str] = "tensorboard"

    def __init__(self, folder: Path, config: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What was noted after the step that is saved, or before anything was, is not shown.
        self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=step + 1)

    def note(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
