"""Best and average of some runs for each encoding, or for each value of another setting."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline.data.sizes import View
from sightline.errors import InputError
from sightline.io.run_files import CELLS
from sightline.runs.console import warn
from sightline.runs.sizes import parse_resolutions, split_words
from sightline.sweeps.run import is_sweep, read_sweep
from sightline.sweeps.scores import CellScore, Objective, SummaryRow, best_and_average, score_of, unique_names
from sightline.training.status import run_status


@dataclass(frozen=True)
class SummaryTable:
    """What runs reached.

    Attributes:
        by: the setting that the rows are of.
        wanted: which number of a run is compared.
        rows: one for each value of that setting.
        scores: what each run reached; folders: of the runs.
    """

    by: str
    wanted: Objective
    rows: list[SummaryRow]
    scores: Sequence[CellScore] = ()
    folders: Sequence[Path] = ()

    def dump(self) -> str:
        """As JSON, an object a line."""
        return "".join(json.dumps(row.as_record(self.by)) + "\n" for row in self.rows)


def summarise(
    runs: Sequence[str | Path],
    *,
    metric: str | None = None,
    split: str | None = None,
    resolutions: Sequence[str | int] | str | int = (),
    by: str = "encoding",
) -> SummaryTable:
    """The best and the average of some runs, as `sightline table` prints them; runs that are not finished are left out.

    Args:
        runs: folders of runs or of sweeps.
        metric: what is compared; the task's primary metric unless given.
        split: of the rows in results.jsonl, instead of the last point of the curve while training.
        resolutions: of these rows, as 32 or "native"; all that are there unless given.
        by: the setting that the lines are of, as "encoding" or "optimizer.lr".

    Raises:
        InputError: a folder is no run, or what is compared was not measured of it.
    """
    if not runs:
        raise InputError("table: expected at least one folder of a run, or of a sweep", field="runs")
    if resolutions and split is None:
        raise InputError("--resolutions: goes with --split, whose rows are compared", field="resolutions")
    shown = parse_resolutions(split_words(resolutions))
    wanted = Objective(metric, split, tuple(one.name if isinstance(one, View) else f"{one} px" for one in shown))
    folders: list[Path] = []
    for place in map(Path, runs):
        if not is_sweep(place):
            folders.append(place)
            continue
        swept = read_sweep(place)
        if split is None and metric is None:
            wanted = swept.wanted
        folders += sorted(one for one in (swept.out / CELLS).glob("*") if one.is_dir())
    scored, finished = [], []
    # One that is named twice, by itself or by its sweep, is one run.
    for folder in list({os.path.realpath(one): one for one in reversed(folders)}.values())[::-1]:
        at = run_status(folder)
        if at.state not in ("finished", "testing"):
            warn(f"{folder}: left out, as it is not finished ({at.state}, step {at.step:,})")
            continue
        scored.append(score_of(folder, wanted))
        finished.append(folder)
    named = unique_names(scored, finished)
    return SummaryTable(by, wanted, best_and_average(named, by), named, finished)
