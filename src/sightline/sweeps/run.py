"""A sweep from its file to its scores: all cells are checked before the first one begins, then this worker runs one
after the other. Workers join by the same call, and may leave or be killed at any time: what they had begun goes back to
the others."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from sightline.distributed import machine
from sightline.errors import InputError, SightlineError, StoppedError, require_known
from sightline.evaluation.measure import EvaluateConfig, check_sizes
from sightline.io.atomic import write_out
from sightline.io.config import build_config, check_value, dump_config, errors_of_file
from sightline.io.run_files import CELLS, CONFIG, SWEEP
from sightline.io.yaml import dump_yaml, read_yaml
from sightline.recipes.config import TrainingData, config_with_recipe
from sightline.sweeps.queue import Claim, State, SweepQueue, require_optuna, without_password
from sightline.sweeps.scores import CellScore, Objective, score_of
from sightline.sweeps.space import SweepCell, SweepConfig, sample_cells, training_fields
from sightline.training import TrainConfig, TrainProgress, train
from sightline.training.checkpointer import last_whole
from sightline.training.jobs import fault_line
from sightline.training.log import unheard
from sightline.training.setup import TrainSetup, build_model, resolve_config, set_up

# Seconds between two looks at the queue, where all that is left is run by others.
POLL = 2.0
# What of a training decides its model, and so whether that can be built.
_OF_MODEL = (
    "data", "model", "init_from", "frozen", "model_options", "encoding", "encoding_options", "resolution", "packing",
    "task", "task_options", "loss", "label_smoothing", "batch_size", "precision",
)  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """A sweep: its file and what that says, and its folder."""

    file: Path
    config: SweepConfig
    out: Path

    @property
    def name(self) -> str:
        """Of its study."""
        return self.config.name or self.out.resolve().name

    @property
    def evaluate(self) -> EvaluateConfig | None:
        """How each cell is measured; None takes its curve on `minival`."""
        asked = self.config.evaluate
        return asked and EvaluateConfig(asked.shown, (asked.split,), images=asked.images, shrink=False)

    @property
    def wanted(self) -> Objective:
        """The number by which its cells are compared."""
        asked = self.evaluate
        if asked is None:
            return Objective(self.config.metric)
        shown = (*(f"{side} px" for side in asked.sides), *(view.name for view in asked.views))
        return Objective(self.config.metric, asked.splits[0], shown)

    def folder(self, cell: SweepCell) -> Path:
        """Of a cell's run."""
        return self.out / CELLS / cell.name

    def queue(self, *, make: bool = True) -> SweepQueue:
        """Its queue; `make` begins it where it is not there."""
        return SweepQueue(self.config, self.out, self.name, url=self.config.storage, make=make)

    def save(self) -> None:
        """Write the copy of its file that `status` and `table` read, without the password of its storage."""
        storage = None if self.config.storage is None else without_password(self.config.storage)
        kept = replace(self.config, out=None, storage=storage, name=self.name)
        write_out(self.out / SWEEP, dump_yaml(dump_config(kept)))

    def training(self, cell: SweepCell, data: TrainingData) -> TrainConfig:
        """What a cell's training is asked for, checked; in a folder that it was begun in, what was begun."""
        with errors_of_file(self.file):
            fields = training_fields(self.config, cell)
            recipe = check_value("base.recipe", fields.pop("recipe", None), str | None)
        began = self.folder(cell) / CONFIG
        return config_with_recipe(fields, data, file=self.words(cell), recipe=recipe, began=lambda _: began)

    def words(self, cell: SweepCell) -> Path:
        """What a refusal of a cell begins with."""
        return Path(f"{self.file}, cell {cell.name}")


def is_sweep(place: Path) -> bool:
    """Whether a path is the folder of a sweep, or a file, as its SWEEP.yaml is one."""
    return place.is_file() or (place / SWEEP).is_file()


def read_sweep(place: Path) -> Sweep:
    """A sweep by its file, or by its folder, which holds a copy of that.

    Raises:
        InputError: the file is missing or wrong; names the key, and the nearest right one.
    """
    file = place / SWEEP if place.is_dir() else place
    if place.is_dir() and not file.is_file():
        raise InputError(f"{place}: is the folder of no sweep (expected {SWEEP} in it)")
    config = build_config(SweepConfig, read_yaml(file), str(file))
    return Sweep(file, config, place if place.is_dir() else Path(config.out or Path("runs") / place.stem))


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    Attributes:
        scores: of the cells that were measured, in their order.
        state: where it is; cells that failed are in `state.failed`.
    """

    sweep: Sweep
    scores: list[CellScore]
    state: State


def sweep(
    place: str | Path | Sweep,
    *,
    device: str = "auto",
    refuse: Callable[[TrainConfig], None] = lambda config: None,
    observe: Callable[[State, Claim | None], None] = lambda state, claim: None,
    on_set_up: Callable[[TrainConfig, TrainingData, TrainSetup], None] = lambda config, data, setup: None,
    on_step: Callable[[TrainProgress], None] = lambda at: None,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
    warn: Callable[[str], None] = unheard,
) -> SweepResult:
    """Train every cell of a SWEEP.yaml once, or search, as `sightline sweep` does; call it in as many processes as
    there shall be workers.

    Args:
        place: the file (docs/how-to/sweeps.md), the folder of a sweep, or the sweep itself.
        device: as `train`.
        refuse: may raise of a cell's configuration, before anything is written.
        observe: called before each cell, and with None while others run the last ones.
        on_set_up: called with what a cell was asked for, its data, and what was made of it; on_step: after each step of
            its training.
        progress: called with what is read, checked or tested, how much of it is done, and how much there is.
        warn: called with lines for the user.

    Raises:
        InputError: the file is wrong, a cell would be refused, or the sweep was begun with another file.
        StorageError: the storage of the queue fails.
        KeyboardInterrupt, StoppedError: a signal came; the cell is saved, and back in the queue.
    """
    require_optuna()
    asked, where = place if isinstance(place, Sweep) else read_sweep(Path(place)), machine.resolve_device(device)
    _check(asked, where, refuse, progress)

    def run(claim: Claim) -> CellScore:
        # Its own data: what is left out of it is counted there.
        cell, folder, data = claim.cell, asked.folder(claim.cell), TrainingData(progress)
        config, test = asked.training(cell, data), asked.evaluate or False
        with errors_of_file(asked.words(cell)):
            source = data.open(config)
        setup = set_up(
            config, source, device=where, last=last_whole(folder, warn), test=test, file=asked.words(cell), warn=warn,
            progress=progress,
        )  # fmt: skip
        on_set_up(config, data, setup)
        done = train(
            setup.config, folder, setup=setup, test=test, device=device, observe=on_step, warn=warn,
            on_tested=lambda tested, total: progress("testing", tested, total),
        )  # fmt: skip
        settings = {"encoding": done.config.encoding, **cell.fields}
        return CellScore(cell.name, settings, score_of(folder, asked.wanted).measured)

    queue = asked.queue()
    with queue.working():
        asked.save()
        state = run_worker(queue, run, observe=observe, warn=warn)
    return SweepResult(asked, [CellScore.from_record(state.scores[number]) for number in sorted(state.scores)], state)


def _check(
    asked: Sweep,
    device: torch.device,
    refuse: Callable[[TrainConfig], None],
    progress: Callable[[str, int, int], None],
) -> None:
    """Refuse a sweep of which a cell would be refused, or could not be compared; nothing is written."""
    built: set[str] = set()
    cells, data, measured = list(sample_cells(asked.config)), TrainingData(progress), asked.config.evaluate
    for number, cell in enumerate(cells, start=1):
        config = asked.training(cell, data)
        refuse(config)
        source = data.open(config)
        with errors_of_file(asked.words(cell)):
            if measured is not None:
                require_known("evaluate.split", measured.split, source.splits)
            elif config.validation is None or "minival" not in source.splits:
                without, held = f"{config.data} has no split minival", f"data {config.data},minival=0.1, or "
                if config.validation is None:
                    without, held = "validation is null", ""
                raise InputError(f"{without}: no cell is measured (expected {held}evaluate: {{split, resolutions}})")
            decided = resolve_config(config, source, device)
            plain = dump_config(decided)
            said = json.dumps({name: plain[name] for name in _OF_MODEL})
            if said not in built:
                built.add(said)
                model = build_model(decided, source)
                if asked.evaluate is not None:
                    check_sizes(model, asked.evaluate.sides)
        progress("checking cells", number, len(cells))


def run_worker(
    queue: SweepQueue,
    run: Callable[[Claim], CellScore],
    *,
    observe: Callable[[State, Claim | None], None],
    warn: Callable[[str], None],
    poll: float = POLL,
) -> State:
    """Run cells until none is left, and say where the sweep is then; where others run the last ones, wait for them, and
    take over those of the dead.

    Args:
        queue: in which this worker is (`SweepQueue.working`).
        run: trains and measures a cell; what it raises is a fault of the cell, which is tried once more.
        observe, warn: as `sweep`, which says too what is raised.
        poll: seconds between two looks while others are at work.
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
            score = run(claim)
            if not math.isfinite(score.measured.value):
                raise SightlineError(f"its value is {score.measured.value}, expected a finite number")
        except (KeyboardInterrupt, StoppedError):
            queue.leave(claim)
            raise
        except Exception as error:
            given_up = queue.fail(claim, fault_line(error))
            warn(f"cell {name} failed{'' if given_up else ', and is tried once more'}: {fault_line(error)}")
            continue
        sign = -1 if score.measured.better == "lower" else 1
        if not queue.finish(claim, asdict(score), sign * score.measured.value):
            warn(f"cell {name}: was taken over by another worker before it was finished here")
