"""The demonstration: three encodings trained side by side, tested, and shown on a page."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.data.open import open_source
from sightline.distributed import machine, signals
from sightline.io.atomic import write_out
from sightline.io.run_files import OTHER_PAGES, PAGE, RESULTS
from sightline.recipes.demo import ENCODINGS, demo_jobs, demo_of
from sightline.reports.results_page import write_report
from sightline.results.rows import ResultRow, dump_rows
from sightline.runs import outputs
from sightline.runs.console import command_line, warn
from sightline.runs.report_content import compose_report
from sightline.training.jobs import Job, JobProgress, run_jobs
from sightline.training.resume_checks import save_config
from sightline.training.setup import resolve

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Demonstration:
    """What a demonstration is, and what came of it.

    Attributes:
        out: its folder; images: of each training.
        rows: by data set; none before it is done.
        seconds: that it took; note: what is said of a quick one.
    """

    out: Path
    jobs: list[Job]
    images: int
    device: torch.device
    note: str = ""
    rows: dict[str, list[ResultRow]] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


def demo(
    task: str = "classification",
    out: str | Path | None = None,
    *,
    seed: int = 0,
    quick: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "cpu",
    begin: Callable[[Demonstration], None] = lambda about: None,
    observe: Callable[[JobProgress], None] = lambda at: None,
) -> Demonstration:
    """Train three encodings on drawn scenes, test them at many sizes, and write a page for each data set.

    Args:
        begin: told what will be done; observe: told how far each run is.

    Raises:
        InputError: there is no demonstration of the task, or the folder cannot be had.
    """
    where = machine.resolve_device(device)
    other = () if task == "classification" else ("--task", task)
    demonstration = demo_of(task, quick=quick)
    folder = Path(out or "_".join(("runs/demo", *other[1:])))
    jobs = demo_jobs(folder, seed=seed, quick=quick, cores=machine.cpu_count(), device=str(where), task=task)
    resolved = [resolve(job.train, open_source(job.train.data), where) for job in jobs]
    words = ("demo", *other, *(("--seed", seed) if seed else ()), *(("--quick",) if quick else ()), "--out", folder)
    command = command_line(*words)
    way_on = command_line(*words, *(("--device", device) if device != "cpu" else ()), "--resume")
    about = Demonstration(folder, jobs, resolved[0].images or 0, where, demonstration.note)
    place = outputs.RunFolder(folder, outputs.Inputs(), resume, overwrite, ENCODINGS)
    with place.claimed(warn) as lock, signals.resume_hint(way_on):
        for job, config in zip(jobs, resolved, strict=True):
            save_config(config, job.out)
        begin(about)
        started = time.perf_counter()
        run_jobs(jobs, observe, warn)
        lock.check()
        seconds = time.perf_counter() - started
        notes = [demonstration.note] if demonstration.note else []
        # A page for each data set, the first of which names the others.
        pages = dict(zip(jobs[0].measured, (PAGE, *OTHER_PAGES), strict=False))
        rows = {}
        for data, name in pages.items():
            folders = [job.out for job in jobs]
            content = compose_report(folders, command, data=data, title=demonstration.title, notes=notes)
            links = [(page, f"The same runs on {one}") for one, page in pages.items() if one != data]
            total = max(seconds, content.seconds_total / len(jobs))
            write_report(folder / name, dataclasses.replace(content, seconds_total=total, links=links))
            rows[data] = list(content.rows)
        write_out(folder / RESULTS, dump_rows([row for some in rows.values() for row in some]))
    return dataclasses.replace(about, rows=rows, seconds=seconds)
