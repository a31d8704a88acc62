"""`sightline table`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.runs import options


def table(
    *runs: Annotated[Path, Parameter(help="Folders of runs, or the folder of a sweep.")],
    metric: str | None = None,
    split: str | None = None,
    resolutions: options.Words = (),
    by: str = "encoding",
    out: Path | None = None,
    overwrite: bool = False,
    json: options.Json = False,
) -> None:
    """Print the best and the average of some runs for each encoding, with the settings of the best.

    What a run reached is the last point of its validation curve, or the mean of its rows of --split; of a sweep it is
    what the sweep compares. Runs that are not finished are left out, and named.

    Args:
        metric: What is compared; the task's primary metric unless given.
        split: Of the rows in results.jsonl (sightline evaluate), instead of the curve while training.
        resolutions: Of these rows, as 32,64 or native; all that are there unless given.
        by: The setting that the lines are of, as encoding or optimizer.lr.
        out: A file for the lines, a JSON object each.
        overwrite: Replace --out if it exists.
    """
    from sightline.cli.sweep_table import dump_lines, print_best_and_average
    from sightline.data.sizes import View
    from sightline.errors import InputError
    from sightline.io.atomic import write_out
    from sightline.io.run_files import CELLS
    from sightline.runs import outputs
    from sightline.runs.console import warn
    from sightline.runs.sizes import parse_resolutions
    from sightline.sweeps.run import is_sweep, read_sweep
    from sightline.sweeps.scores import Objective, best_and_average, score_of, unique_names
    from sightline.training.status import run_status

    if not runs:
        raise InputError("table: expected at least one folder of a run, or of a sweep")
    if resolutions and split is None:
        raise InputError("--resolutions: goes with --split, whose rows are compared")
    folders, wanted = [], Objective(metric, split)
    shown = parse_resolutions(resolutions)
    wanted = Objective(metric, split, tuple(one.name if isinstance(one, View) else f"{one} px" for one in shown))
    for place in runs:
        if not is_sweep(place):
            folders.append(place)
            continue
        swept = read_sweep(place)
        if split is None and metric is None:
            wanted = swept.wanted
        folders += sorted(one for one in (swept.out / CELLS).glob("*") if one.is_dir())
    # One that is named twice, by itself or by its sweep, is one run.
    folders = list({os.path.realpath(folder): folder for folder in reversed(folders)}.values())[::-1]
    if out is not None:
        outputs.claim_file(out, overwrite=overwrite, inputs=outputs.Inputs(models=folders, files=runs))
    scored, kept = [], []
    for folder in folders:
        at = run_status(folder)
        if at.state not in ("finished", "testing"):
            warn(f"{folder}: left out, as it is not finished ({at.state}, step {at.step:,})")
            continue
        scored.append(score_of(folder, wanted))
        kept.append(folder)
    lines = best_and_average(unique_names(scored, kept), by)
    if out is not None:
        write_out(out, dump_lines(lines, by))
    if json:
        print(dump_lines(lines, by), end="")
        return
    print_best_and_average(lines, by, wanted)
    if out is not None:
        print(f"lines: {out}")
