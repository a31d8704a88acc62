"""`sightline report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def report(
    *runs: Annotated[Path, Parameter(help="Folders of runs that were trained and evaluated on the same data.")],
    data: str | None = None,
    out: Path = Path("report.html"),
    title: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write one self-contained HTML page that compares runs: curves, tables, scenes, fields of view.

    Args:
        data: What was measured on this data set (evaluate --data); on that of the training unless given.
        out: The page.
        title: Its heading; what was measured, by resolution, unless given.
        overwrite: Replace the page if it exists.
    """
    from sightline.cli import guard, next_step, output
    from sightline.cli.run_folder import compose_report
    from sightline.errors import InputError
    from sightline.replacing import make_parent
    from sightline.reports.html import write_report
    from sightline.reports.seen import by_run
    from sightline.reports.tables import print_accuracy

    if not runs:
        raise InputError("report: expected at least one folder of a run")
    runs = tuple(map(guard.home_of, runs))
    output.claim_file(out, inputs=guard.Inputs(models=runs), overwrite=overwrite)
    words = ("report", *runs, *(() if data is None else ("--data", data)), "--out", out)
    content = compose_report(runs, next_step.again(*words), data=data, title=title)
    make_parent(out)
    write_report(out, content)
    print_accuracy(content.rows, seen=by_run(content.runs))
    print(f"report: {out}")
    next_step.say_predict_or_export(runs[0])
