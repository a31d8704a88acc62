"""Where the time of a training went, in the terminal."""

from __future__ import annotations

from pathlib import Path

from sightline.io.read import read_json
from sightline.io.run_files import PROFILE
from sightline.reports.tables import print_table
from sightline.training.profiling import ROW, TRACE


def profiled_at(folder: Path) -> int | None:
    """When the profile in a run's folder was written, in nanoseconds; None where there is none."""
    try:
        return (folder / PROFILE / ROW).stat().st_mtime_ns
    except OSError:
        return None


def print_profile(folder: Path) -> None:
    """Print what `train --profile` left in a run's folder: its phases, and the operators that took longest."""
    row = read_json(folder / PROFILE / ROW, "a profile")
    phases = [(name, f"{100 * share:.1f}") for name, share in row["phases"].items()]
    steps, seconds = row["profiled_steps"], row["seconds"]
    print_table(("phase", "% of the time"), phases, title=f"{steps} steps of {1e3 * seconds / steps:,.0f} ms")
    operators = [(one["operator"], f"{one['ms']:.2f}", f"{one['calls']:.0f}") for one in row["operators"]]
    print_table(("operator", "ms a step", "calls a step"), operators)
    print(f"trace: {folder / PROFILE / TRACE} (chrome://tracing, ui.perfetto.dev)")
