"""`sightline table`."""

from __future__ import annotations

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
    from sightline.cli.sweep_table import print_best_and_average
    from sightline.io.atomic import write_out
    from sightline.runs import outputs
    from sightline.runs.table import summarise

    if out is not None:
        outputs.claim_file(out, overwrite=overwrite, inputs=outputs.Inputs(models=runs, files=runs))
    found = summarise(runs, metric=metric, split=split, resolutions=resolutions, by=by)
    if out is not None:
        # The cells of a sweep are known now.
        outputs.claim_file(out, overwrite=overwrite, inputs=outputs.Inputs(models=found.folders, files=runs))
        write_out(out, found.dump())
    if json:
        print(found.dump(), end="")
        return
    print_best_and_average(found)
    if out is not None:
        print(f"lines: {out}")
