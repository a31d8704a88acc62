"""A comparison from what was asked for to its rows and its page."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from sightline.cli import next_step, progress
from sightline.cli.compare_watch import CompareWatch
from sightline.data.open import open_source
from sightline.distributed import machine, signals
from sightline.evaluation.compared import compare_runs
from sightline.io.atomic import write_file, write_out
from sightline.io.run_files import COMPARISON, PAGE, TABLES
from sightline.models import make_model
from sightline.recipes.compare import TRAINED, Compare, compare_jobs, compared_runs
from sightline.reports.comparison_page import render
from sightline.reports.comparison_tables import print_comparison, tables
from sightline.reports.latex import csv_of, latex_of
from sightline.reports.words import listed
from sightline.results.comparison import dump_compared
from sightline.runs import console, outputs
from sightline.tokens.patchify import check_multiples
from sightline.training.config import TrainConfig
from sightline.training.jobs import Job, run_jobs
from sightline.training.resume_checks import save_config
from sightline.training.setup import model_config_of, resolve
from sightline.training.status import run_status

_DEMONSTRATION = 48_000


def carry_out(
    asked: Compare,
    out: Path,
    *,
    where: torch.device,
    resume: bool,
    overwrite: bool,
    command: str,
    way_on: str,
) -> None:
    """Train and measure all runs, several at a time, and write what they say of each other.

    Raises:
        InputError: an encoding, a size or the folder is refused; nothing was written.
        SightlineError: of the first run that failed; the others finish their step, and stop.
        KeyboardInterrupt: a signal came; the runs are saved.
    """
    cores = machine.cpu_count()
    jobs = compare_jobs(asked, out, device=str(where))
    at_once = max(min(cores, len(jobs)), 1) if where.type == "cpu" else 1
    resolved = _checked(jobs, asked, where)
    inside = tuple(job.name for job in jobs)
    place = outputs.RunFolder(out, outputs.Inputs(), resume, overwrite, inside)
    with place.claimed(console.warn) as lock, signals.resume_hint(way_on):
        for job, config in zip(jobs, resolved, strict=True):
            if job.after is None:
                save_config(config, job.out)
        _say(asked, jobs, where)
        left = [job for job in jobs if not _is_done(job)]
        started = time.perf_counter()
        expected = None
        if left:
            with progress.Bars() as bars:
                watch = CompareWatch(left, at_once, bars)
                done = f", of which {len(jobs) - len(left)} are done" if len(left) < len(jobs) else ""
                print(f"{len(jobs)} trainings in all{done}, {at_once} at a time.")
                print("How long it takes here is said after the first steps.")
                run_jobs(left, watch, console.warn, at_once)
                expected = watch.expected
        lock.check()
        rows = compare_runs(compared_runs(jobs))
        made = tables(rows)
        seconds = time.perf_counter() - started
        notes = ["A quick run: far too few scenes to learn from; its numbers say nothing."] if asked.quick else []
        page = render(rows, command=command, demonstration=_DEMONSTRATION, notes=notes)
        lock.check()
        for name, text in zip(TABLES, (csv_of(made), latex_of(made)), strict=True):
            write_file(out / name, text)
        write_file(out / PAGE, page.encode("utf-8", "replace"))
        # The rows last: where they are, the comparison is done.
        write_out(out / COMPARISON, dump_compared(rows))
        print_comparison(rows)
        said = "" if expected is None else f" ({expected / 60:.1f} were expected)"
        print(f"Took {seconds / 60:.1f} minutes{said}.")
        for name in (COMPARISON, *TABLES):
            print(f"{'rows' if name == COMPARISON else 'tables'}: {out / name}")
        print(f"open in a browser: {out / PAGE}")
        next_step.say_next("evaluate", jobs[0].out, "--resolutions", asked.resolutions[-1])


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


def _say(asked: Compare, jobs: list[Job], where: torch.device) -> None:
    """What will be done, before it is."""
    config = jobs[0].train
    seeds = "seed" if len(asked.seeds) == 1 else "seeds"
    print(f"{len(asked.encodings)} encodings ({', '.join(asked.encodings)}), {len(asked.seeds)} {seeds} each,")
    fewer = f", fewer than the demonstration's {_DEMONSTRATION:,}" if (config.images or 0) < _DEMONSTRATION else ""
    print(f"each trained on {config.images:,} scenes at {TRAINED} px{fewer}.")
    print(f"Then tested at {listed([str(side) for side in asked.resolutions])} px, knobs tuned at each.")
    if asked.fine_tune is not None:
        print(f"Then trained on for {jobs[-1].train.images:,} scenes at {asked.fine_tune} px, and tested there.")
    if asked.quick:
        print("Quick: too few scenes to learn from, to see that everything works.")
    print(f"On {machine.hardware_name(where)}.")
