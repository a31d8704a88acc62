"""`sightline rescore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.runs import options


def rescore(
    logits: Annotated[Path, Parameter(help="A folder written by sightline evaluate --logits, or a file in it.")],
    *,
    out: Path | None = None,
    overwrite: bool = False,
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Compute every metric of a classifier again from stored logits, without model and images.

    If minival logits are among the files, a temperature is fitted on them for each size or view.

    Args:
        out: A file for the rows.
        overwrite: Replace --out if it exists.
    """
    from sightline.cli import progress
    from sightline.cli.show import print_by_data
    from sightline.distributed import machine
    from sightline.evaluation.logits import find_logits, read_logits, refuse_twice, rescore
    from sightline.evaluation.temperature import temperatures_from_logits
    from sightline.io.atomic import write_out
    from sightline.results.rows import ResultRow, dump_rows
    from sightline.runs import outputs

    machine.set_threads(threads)
    files = find_logits(logits)
    if out is not None:
        outputs.claim_file(out, overwrite=overwrite, inputs=outputs.Inputs(files=files))
        outputs.check_writable(out)
    rows: list[ResultRow] = []
    fitted = temperatures_from_logits(files)
    measured = {}
    with progress.bar_of("measuring", sum(len(read_logits(file, header=True).names) for file in files)) as advance:
        for file in files:
            stored = read_logits(file)
            measured[file] = stored.measured
            refuse_twice(measured)
            rows += rescore(stored, advance, fitted.of(stored))
    if out is not None:
        write_out(out, dump_rows(rows))
    if json:
        print(dump_rows(rows), end="")
        return
    print_by_data(rows)
    if out is not None:
        print(f"rows: {out}")
