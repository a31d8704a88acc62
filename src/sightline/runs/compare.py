"""A comparison from what was asked for to its rows and its page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from sightline.data.open import open_source
from sightline.distributed import machine, signals
from sightline.encodings.discovery import first_line
from sightline.evaluation.compared import compare_runs
from sightline.io.atomic import write_file, write_out
from sightline.io.config import check_value, whole
from sightline.io.run_files import COMPARISON, PAGE, TABLES
from sightline.models import make_model
from sightline.recipes.compare import ENCODINGS, RESOLUTIONS, TRAINED, Compare, compare_jobs, compared_runs
from sightline.reports.comparison_page import render, tables
from sightline.reports.tables import csv_of, latex_of
from sightline.results.rows import dump_rows, to_frame
from sightline.runs import outputs
from sightline.runs.console import command_line, option_words, warn
from sightline.runs.options import changed
from sightline.runs.sizes import parse_numbers, split_words
from sightline.runs.training_options import CompareOptions
from sightline.tokens.patchify import check_multiples
from sightline.training.config import TrainConfig
from sightline.training.jobs import Job, JobProgress, run_jobs
from sightline.training.resume_checks import save_config
from sightline.training.setup import model_config_of, resolve
from sightline.training.status import run_status

DEMONSTRATION = 48_000
"""Images of each training of the demonstration."""


@dataclass(frozen=True)
class ComparisonResult:
    """What a comparison is, and what came of it.

    Attributes:
        asked: encodings, seeds and sizes; jobs: the trainings, of which some may be done already.
        rows: none before it is done; seconds: that it took.
    """

    out: Path
    asked: Compare
    jobs: list[Job]
    left: int
    at_once: int
    device: torch.device
    rows: list[Any] = field(default_factory=list)
    seconds: float = 0.0

    def frame(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        return to_frame(self.rows)


def compare(
    options: CompareOptions | None = None,
    out: str | Path = "runs/compare",
    *,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    begin: Callable[[ComparisonResult], None] = lambda about: None,
    observe: Callable[[JobProgress], None] = lambda at: None,
    **changes: Any,
) -> ComparisonResult:
    """Train and measure all runs, several at a time, and write what they say of each other: rows, tables and a page.

    Args:
        options: encodings, seeds and sizes, changed by keywords: `encodings=["rope_axial", "lookhere_90"]`, ...
        out: the folder of the comparison, which holds those of its runs.
        begin: called with what will be done.
        observe: called with how far each run is.

    Raises:
        InputError: an encoding, a size or the folder is refused; nothing was written.
        SightlineError: of the first run that failed; the others finish their step, and stop.
        KeyboardInterrupt: a signal came; the runs are saved.
    """
    options = cast("CompareOptions", changed(options or CompareOptions(), changes))
    asked = _trainings(options)
    out, where, cores = Path(out), machine.resolve_device(device), machine.cpu_count()
    jobs = compare_jobs(asked, out, device=str(where))
    at_once = max(min(cores, len(jobs)), 1) if where.type == "cpu" else 1
    resolved = _checked(jobs, asked, where)
    command = ("compare", *option_words(options), "--out", out)
    way_on = (*command, *(("--device", device) if device != "cpu" else ()), "--resume")
    place = outputs.RunFolder(out, outputs.Inputs(), resume, overwrite, tuple(job.name for job in jobs))
    with place.claimed(warn) as lock, signals.resume_hint(command_line(*way_on)):
        for job, config in zip(jobs, resolved, strict=True):
            if job.after is None:
                save_config(config, job.out)
        left = [job for job in jobs if not _is_done(job)]
        about = ComparisonResult(out, asked, jobs, len(left), at_once, where)
        begin(about)
        started = time.perf_counter()
        run_jobs(left, observe, warn, at_once)
        lock.check()
        rows = compare_runs(compared_runs(jobs))
        made = tables(rows)
        notes = ["A quick run: far too few scenes to learn from; its numbers say nothing."] if asked.quick else []
        said = {name: first_line(name) for name in asked.encodings}
        page = render(rows, command=command_line(*command), demonstration=DEMONSTRATION, notes=notes, said=said)
        lock.check()
        for name, text in zip(TABLES, (csv_of(made), latex_of(made)), strict=True):
            write_file(out / name, text)
        write_file(out / PAGE, page.encode("utf-8", "replace"))
        # The rows last: where they are, the comparison is done.
        write_out(out / COMPARISON, dump_rows(rows))
    return replace(about, rows=list(rows), seconds=time.perf_counter() - started)


def _trainings(options: CompareOptions) -> Compare:
    for option, value, least in (
        ("--seeds", options.seeds, 1),
        ("--seed", options.seed, 0),
        ("--fine-tune", options.fine_tune, 1),
    ):
        check_value(option, value, whole(least))
    sides = parse_numbers("--sizes", options.sizes, int, "sides in pixels, as 32,64,148") or RESOLUTIONS
    larger = None if options.no_fine_tune else options.fine_tune
    return Compare(
        tuple(split_words(options.encodings)) or ENCODINGS,
        tuple(range(options.seed, options.seed + options.seeds)),
        # What differs at the sizes of both trainings is a part of every comparison.
        tuple(sorted({*sides, TRAINED, larger or TRAINED})),
        options.images,
        larger,
        options.quick,
    )


def _checked(jobs: list[Job], asked: Compare, where: torch.device) -> list[TrainConfig]:
    """The configuration of each run, checked; of a second training as asked for: its weights are not there yet."""
    resolved = []
    for job in jobs:
        source = open_source(job.train.data)
        if job.after is not None:
            resolved.append(job.train)
            continue
        config = resolve(job.train, source, where)
        model = model_config_of(config, source)
        with torch.device("meta"):
            make_model(model)
        if asked.fine_tune is not None:
            check_multiples("--fine-tune {}", [asked.fine_tune], model.patch_size)
        check_multiples("--sizes {}", asked.resolutions, model.patch_size)
        resolved.append(config)
    return resolved


def _is_done(job: Job) -> bool:
    return job.is_measured and run_status(job.out).state in ("finished", "testing")
