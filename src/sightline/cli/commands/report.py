"""`sightline report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.runs import options


def report(
    *runs: Annotated[
        Path, Parameter(help="Folders of runs, models, evaluate --out (all with the same data), or transfer.")
    ],
    data: options.AnyData = None,
    paper: options.Words = (),
    out: Path = Path("report.html"),
    title: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write one self-contained HTML page that compares runs: curves, tables, scenes, fields of view.

    Args:
        data: Show what was measured on this data set (evaluate --data). Default: the data set of the training.
        paper: Also draw the numbers of these papers: lookhere (tables 1 and 6), rope_vit (table 5); for transfer vit
            (tables 2 and 9); for attributes navit (figure 12).
        out: The page to write.
        title: Title of the page. Default: what was measured, by resolution.
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
