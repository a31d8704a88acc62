"""One page that compares runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline import published
from sightline.errors import InputError, require_known
from sightline.io.atomic import make_parent, write_out
from sightline.io.run_files import TRANSFER
from sightline.reports import transfer_page
from sightline.reports.content import Report
from sightline.reports.figures import check_paper
from sightline.reports.results_page import write_report
from sightline.reports.series import Study
from sightline.results.rows import read_rows
from sightline.results.transfer import TransferRow
from sightline.runs import outputs
from sightline.runs.console import command_line
from sightline.runs.report_content import compose_report

NAVIT = "navit"
"""The paper that prints tests of attributes, and no curve."""


@dataclass(frozen=True)
class WrittenReport:
    """A page that was written: its `path` and its `content`, rows where it is of transfers. Shown in a notebook, the
    page itself."""

    path: Path
    content: Report | list[TransferRow]

    def _repr_html_(self) -> str:
        return self.path.read_text(encoding="utf-8")


def report(
    runs: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    data: str | None = None,
    papers: Sequence[str] = (),
    title: str | None = None,
    overwrite: bool = False,
) -> WrittenReport:
    """Write one self-contained HTML page that compares runs, as `sightline report` does.

    Args:
        runs: folders of runs that were trained and evaluated on the same data, of models that were measured, or of
            `evaluate(out=...)`; or of `transfer`, one a model.
        data: shows what was measured on this data set; on that of the training unless given.
        papers: whose printed curves stand beside: `lookhere`, `rope_vit`; of attributes `navit`; of transfers `vit`.
        title: its heading.

    Raises:
        InputError: a folder holds no measured model, the runs do not go together, or `out` exists.
    """
    papers = [papers] if isinstance(papers, str) else papers
    out, transfers = Path(out), [Path(run) / TRANSFER for run in runs if (Path(run) / TRANSFER).is_file()]
    folders = [Path(run) if transfers else outputs.home_of(Path(run)) for run in runs]
    if not folders:
        raise InputError("report: expected at least one folder of a run")
    outputs.claim_file(out, inputs=outputs.Inputs(models=folders), overwrite=overwrite)
    for name in papers:
        require_known("--paper", name, transfer_page.PAPERS if transfers else [*published.with_curves(), NAVIT])
    words = ("report", *folders, *(() if data is None else ("--data", data)))
    words = (*words, *(("--paper", ",".join(papers)) if papers else ()), "--out", out)
    if transfers:
        if len(transfers) < len(folders) or data is not None:
            raise InputError("report: expected folders of transfer alone, without --data, or of runs alone")
        rows = [row for file in transfers for row in read_rows(file, TransferRow)]
        write_out(out, transfer_page.render(rows, command_line(*words), title=title, papers=papers))
        return WrittenReport(out, rows)
    content = compose_report(folders, command_line(*words), data=data, title=title, papers=papers)
    study = Study.of(content.rows) if papers else None
    for name in papers:
        if name == NAVIT and not any(row.right for row in content.rows):
            expected = "expected runs measured by --measures linear_probe on a table with attributes"
            raise InputError(f"--paper {name}: prints tests of attributes alone ({expected})", field="--paper")
        if study is not None and name != NAVIT:
            check_paper(study, published.paper(name))
    make_parent(out)
    write_report(out, content)
    return WrittenReport(out, content)
