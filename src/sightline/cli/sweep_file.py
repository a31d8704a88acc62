"""A SWEEP.yaml, and the folder of a sweep, which holds a copy of it: what it says, and where its queue is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sightline.cli.resolutions import parse_resolutions
from sightline.errors import InputError
from sightline.evaluation.measure import EvaluateConfig
from sightline.io.atomic import write_out
from sightline.io.config import build_config, dump_config
from sightline.io.run_files import CELLS, SWEEP
from sightline.io.yaml import dump_yaml, read_yaml
from sightline.sweeps.queue import SweepQueue, without_password
from sightline.sweeps.scores import Objective
from sightline.sweeps.space import SweepCell, SweepConfig


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
        if asked is None:
            return None
        shown = parse_resolutions(map(str, asked.resolutions))
        return EvaluateConfig(shown, (asked.split,), images=asked.images, shrink=False)

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
        """Its queue.

        Args:
            make: begin it where it is not there.
        """
        return SweepQueue(self.config, self.out, self.name, url=self.config.storage, make=make)

    def keep(self) -> None:
        """Write the copy of its file that `status` and `table` read, without the password of its storage."""
        storage = None if self.config.storage is None else without_password(self.config.storage)
        kept = replace(self.config, out=None, storage=storage, name=self.name)
        write_out(self.out / SWEEP, dump_yaml(dump_config(kept)))


def is_sweep(place: Path) -> bool:
    """Whether a path is the folder of a sweep, or a file, as its SWEEP.yaml is one."""
    return place.is_file() or (place / SWEEP).is_file()


def read_sweep(place: Path) -> Sweep:
    """A sweep by its file, or by its folder.

    Raises:
        InputError: the file is missing or wrong; names the key, and the nearest right one.
    """
    if place.is_dir():
        if not (place / SWEEP).is_file():
            raise InputError(f"{place}: is the folder of no sweep (expected {SWEEP} in it)")
        return Sweep(place / SWEEP, build_config(SweepConfig, read_yaml(place / SWEEP), str(place / SWEEP)), place)
    config = build_config(SweepConfig, read_yaml(place), str(place))
    if config.evaluate is not None:
        try:
            parse_resolutions(map(str, config.evaluate.resolutions))
        except InputError as error:
            raise InputError(f"{place}: evaluate.{str(error).removeprefix('--')}") from None
    return Sweep(place, config, Path(config.out or Path("runs") / place.stem))
