"""`sightline report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.cli import options


def report(
    *runs: Annotated[Path, Parameter(help="Folders of runs that were trained and evaluated on the same data.")],
    data: options.AnyData = None,
    paper: options.Words = (),
    out: Path = Path("report.html"),
    title: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write one self-contained HTML page that compares runs: curves, tables, scenes, fields of view.

    Args:
        data: What was measured on this data set (evaluate --data); on that of the training unless given.
        paper: Draw what these papers printed beside what was measured: lookhere (tables 1 and 6), rope_vit (table 5).
        out: The page.
        title: Its heading; what was measured, by resolution, unless given.
        overwrite: Replace the page if it exists.
    """
    from sightline import published
    from sightline.cli import guard, next_step, output
    from sightline.cli.resolutions import split_words
    from sightline.cli.run_folder import compose_report
    from sightline.errors import InputError, require_known
    from sightline.io.atomic import make_parent
    from sightline.reports.figures import check_paper
    from sightline.reports.html import write_report
    from sightline.reports.seen import by_run
    from sightline.reports.series import Study
    from sightline.reports.tables import print_accuracy

    if not runs:
        raise InputError("report: expected at least one folder of a run")
    runs = tuple(map(guard.home_of, runs))
    output.claim_file(out, inputs=guard.Inputs(models=runs), overwrite=overwrite)
    chosen = list(dict.fromkeys(split_words(paper)))
    for name in chosen:
        require_known("--paper", name, published.with_curves())
    words = ("report", *runs, *(() if data is None else ("--data", data)))
    words = (*words, *(("--paper", ",".join(chosen)) if chosen else ()), "--out", out)
    content = compose_report(runs, next_step.again(*words), data=data, title=title, papers=chosen)
    if chosen:
        study = Study.of(content.rows)
        for name in chosen:
            check_paper(study, published.paper(name))
    make_parent(out)
    write_report(out, content)
    print_accuracy(content.rows, seen=by_run(content.runs))
    print(f"report: {out}")
    next_step.say_predict_or_export(runs[0])
