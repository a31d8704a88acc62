"""`sightline status`."""

from __future__ import annotations

import json as json_module
from pathlib import Path

from sightline.runs.options import JsonObject


def status(place: Path, /, *, json: JsonObject = False) -> None:
    """Show the progress of a run or a sweep, from any terminal or machine that sees its files.

    Only reads. For a run: state, step, loss, speed, expected end, last validation and checkpoint. For a sweep: how many
    runs wait, run, are finished or failed, and the progress of those that run.

    Args:
        place: The folder of a run or of a sweep, or a SWEEP.yaml.
    """
    from sightline.cli.sweep_table import status_line, status_rows
    from sightline.errors import InputError
    from sightline.reports.tables import print_table
    from sightline.sweeps.run import is_sweep, read_sweep
    from sightline.training.status import run_status

    if not place.exists():
        raise InputError(f"{place}: is not there (expected the folder of a run or of a sweep, or a SWEEP.yaml)")
    if not is_sweep(place):
        at = run_status(place)
        if json:
            print(json_module.dumps(at.as_record()))
        else:
            print_table(("", at.run), status_rows(at))
        return
    swept = read_sweep(place)
    state = swept.queue(make=False).state()
    runs = []
    for number, who in sorted(state.running.items()):
        cell = state.cells.get(number)
        try:
            at = None if cell is None else run_status(swept.folder(cell))
        except InputError:
            # It begins, or its folder is on another machine.
            at = None
        runs.append((state.name(number), who, at))
    counts = {
        "waiting": len(state.waiting), "running": len(runs), "finished": len(state.scores), "failed": len(state.failed)
    }  # fmt: skip
    if json:
        running = [
            {"cell": name, "worker": who, "status": None if at is None else at.as_record()} for name, who, at in runs
        ]
        faults = {str(number): fault for number, fault in sorted(state.failed.items())}
        print(json_module.dumps({"sweep": swept.name, "cells": swept.config.count, **counts, "runs": running,
                                 "faults": faults}))  # fmt: skip
        return
    print_table(("cells", *counts), [(swept.config.count, *counts.values())], title=f"Sweep {swept.name}")
    if runs:
        rows = [(name, "begins" if at is None else status_line(at), who) for name, who, at in runs]
        print_table(("cell", "where it is", "worker"), rows, title="Running cells")
    for number, fault in sorted(state.failed.items()):
        print(f"failed: {state.name(number)}: {fault}")
