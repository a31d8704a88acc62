"""`sightline report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.runs import options


def report(
    *runs: Annotated[
        Path, Parameter(help="Folders of runs, models or evaluate --out, measured on the same data; or of transfer.")
    ],
    data: options.AnyData = None,
    paper: options.Words = (),
    out: Path = Path("report.html"),
    title: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write one self-contained HTML page that compares runs, or models: curves, tables, scenes, fields of view.

    Args:
        data: What was measured on this data set (evaluate --data); on that of the training unless given.
        paper: Draw what these papers printed beside what was measured: lookhere (tables 1 and 6), rope_vit (table 5);
            of transfers vit (tables 2 and 9); of attributes navit (figure 12).
        out: The page.
        title: Its heading; what was measured, by resolution, unless given.
        overwrite: Replace the page if it exists.
    """
    from sightline.cli import next_step
    from sightline.reports.results_tables import print_accuracy
    from sightline.reports.seen import by_run
    from sightline.reports.transfer_page import print_transfer
    from sightline.runs import outputs
    from sightline.runs.report import report as write
    from sightline.runs.sizes import split_words

    papers = list(dict.fromkeys(split_words(paper)))
    content = write(runs, out, data=data, papers=papers, title=title, overwrite=overwrite).content
    if isinstance(content, list):
        print_transfer(content)
        print(f"report: {out}")
        return
    print_accuracy(content.rows, seen=by_run(content.runs, content.rows), main_alone=True)
    print(f"report: {out}")
    next_step.say_export(outputs.home_of(runs[0]))
