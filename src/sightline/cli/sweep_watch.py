"""What is shown of a sweep at work: each cell's bars, and whom this worker waits for."""

from __future__ import annotations

import contextlib
import sys

from sightline.cli import run_config
from sightline.cli.progress import Bars
from sightline.recipes.config import TrainingData
from sightline.sweeps.queue import Claim, State
from sightline.training.config import TrainConfig
from sightline.training.loop import TrainProgress
from sightline.training.setup import TrainSetup


class SweepWatch(contextlib.AbstractContextManager["SweepWatch"]):
    """Called by `sweep` with where it is; `count` is the number of cells."""

    def __init__(self, count: int) -> None:
        self._count, self._waits = count, False
        self._stack = contextlib.ExitStack()
        self._bars = self._stack.enter_context(Bars(late=0.5))
        self._setup: TrainSetup | None = None
        # What is read and said again of each cell is shown once.
        self._read, self._said = set[tuple[str, int]](), set[str]()

    def __exit__(self, *fault: object) -> None:
        self._stack.close()

    def progress(self, name: str, done: int, total: int) -> None:
        """What is read, checked or tested."""
        if (name, total) not in self._read:
            self._bars.move(name, done, total)
        if name.startswith("reading") and done >= total:
            self._read.add((name, total))

    def observe(self, at: State, claim: Claim | None) -> None:
        """The next cell, or others run the last ones."""
        self._say_left_out()
        done = len(at.scores) + len(at.failed)
        if claim is not None or not (self._waits or at.done):
            # Each cell has bars of its own, and a terminal shows those of one.
            self._stack.close()
            self._bars, self._waits = self._stack.enter_context(Bars()), claim is None
        if claim is not None:
            again = ", goes on" if claim.again else ""
            print(f"cell {claim.cell.name} ({done} of {self._count} done{again})", file=sys.stderr, flush=True)
        elif not at.done:
            others = ", ".join(f"{at.name(number)} by {who}" for number, who in at.running.items())
            self._bars.move("waiting for others", done, self._count, others)

    def on_set_up(self, wanted: TrainConfig, data: TrainingData, setup: TrainSetup) -> None:
        """What a cell was asked for, and what was made of it."""
        self._setup = setup
        run_config.say_set_up(wanted, data, setup, self._bars, self._said, fresh=setup.last is None)

    def on_step(self, at: TrainProgress) -> None:
        """A step of a cell's training."""
        run_config.show_step(self._bars, "training", at)

    def _say_left_out(self) -> None:
        """What could not be read of the cell before, while it was trained."""
        if self._setup is not None:
            self._bars.say_left_out(self._setup.source)
            self._setup = None
