"""`sightline table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.runs import options


def table(
    *runs: Annotated[Path, Parameter(help="Folders of runs, or of a sweep.")],
    metric: str | None = None,
    split: str | None = None,
    resolutions: options.Words = (),
    by: str = "encoding",
    out: Path | None = None,
    overwrite: bool = False,
    json: options.Json = False,
) -> None:
    """Print the best and the average of some runs for each encoding, with the settings of the best.

    A run's value is the last point of its validation curve, or the mean of its rows with --split; in a sweep it is what
    the sweep compares. Unfinished runs are named and left out.

    Args:
        metric: The metric to compare. Default: the task's primary metric.
        split: Compare rows of this split in results.jsonl (sightline evaluate) instead of the last validation.
        resolutions: With --split: only rows of these sizes, for example 32,64 or native. Default: all.
        by: The setting with one line for each value, for example encoding or optimizer.lr.
        out: A file for the lines, one JSON object per line.
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
