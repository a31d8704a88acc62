"""`sightline verify`."""

from __future__ import annotations

import dataclasses
import json as json_module
from pathlib import Path

from sightline.runs.options import Json


def verify(dest: Path, *, against: Path, project: str, json: Json = False) -> int:
    """Compare a converted model with its source; the exit code is 1 if they differ.

    Weights are compared bit by bit. Outputs are compared with those of the original model if its project is installed
    (timm), else with those recorded at conversion.

    Args:
        dest: The folder written by `sightline convert`.
        against: The source of the conversion.
        project: The project given to `sightline convert`.
    """
    from sightline.cli import next_step, progress
    from sightline.cli.foreign import read_source
    from sightline.convert.verify import verify as compare
    from sightline.errors import SightlineError
    from sightline.hub.load import load_model, read_config_record
    from sightline.reports.tables import print_table

    with progress.Bars() as bars:
        bars.move("reading", 0, 2)
        record = read_config_record(dest)
        model = load_model(dest)
        state, _ = read_source(project, against, None, {}, needed=False)
        bars.move("comparing", 1, 2)
        rows = compare(model, record, project, state)
        bars.move("comparing", 2, 2)
    if json:
        for row in rows:
            print(json_module.dumps({**dataclasses.asdict(row), "passed": row.passed}))
    else:
        said = {True: "equal", False: "DIFFERS"}
        cells = [
            (one.what, one.against, f"{one.difference:.1e}", f"{one.limit:.0e}", f"{one.spread:.2f}", said[one.passed])
            for one in rows
        ]
        print_table(("compared", "with", "largest difference", "allowed", "spread", ""), cells)
    if not all(row.passed for row in rows):
        return SightlineError.exit_code
    if not json:
        next_step.say_export(dest)
    return 0
