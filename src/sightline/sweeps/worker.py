"""A worker of a sweep: one cell after the other, until all are done. Workers join by the same command, and may leave or
be killed at any time: what they had begun goes back to the others."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError, StoppedError
from sightline.sweeps.queue import Claim, State, SweepQueue

# Seconds between two looks at the queue, where all that is left is run by others.
POLL = 2.0


@dataclass(frozen=True)
class CellResult:
    """What a run of a cell came to.

    Attributes:
        score: what is kept of it in the storage, as JSON has it.
        value: what is compared; better: whether the `higher` ones are, or the `lower`.
    """

    score: Mapping[str, Any]
    value: float
    better: str = "higher"


def run_worker(
    queue: SweepQueue,
    run: Callable[[Claim], CellResult],
    *,
    observe: Callable[[State, Claim | None], None],
    warn: Callable[[str], None],
    poll: float = POLL,
) -> State:
    """Run cells until none is left; where others run the last ones, wait for them, and take over those of the dead.

    Args:
        queue: inside of its `working`.
        run: of a cell.
        observe: called with the state of the sweep before each cell, and at each look while this one waits.
        warn: called with a line where a cell failed.

    Returns:
        The state of the finished sweep; `failed` names the cells that were given up.

    Raises:
        KeyboardInterrupt, StoppedError: a signal came; the cell is back in the queue, with its checkpoint.
        StorageError: the storage fails.
    """
    while True:
        claim, state = queue.claim(), queue.state()
        if claim is None:
            observe(state, None)
            if state.done:
                return state
            time.sleep(poll)
            continue
        name = claim.cell.name
        try:
            observe(state, claim)
            reached = run(claim)
            if not math.isfinite(reached.value):
                raise SightlineError(f"its value is {reached.value}, expected a finite number")
        except (KeyboardInterrupt, StoppedError):
            queue.leave(claim)
            raise
        except Exception as error:
            given_up = queue.fail(claim, said_of(error))
            warn(f"cell {name} failed{'' if given_up else ', and is tried once more'}: {said_of(error)}")
            continue
        if not queue.finish(claim, reached.score, reached.value if reached.better != "lower" else -reached.value):
            warn(f"cell {name}: was taken over by another worker before it was finished here")


def said_of(error: Exception) -> str:
    """A fault in a line; one that no user caused, with its place."""
    if isinstance(error, SightlineError):
        return str(error)
    line = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {said} ({Path(line.filename).name}:{line.lineno})"
