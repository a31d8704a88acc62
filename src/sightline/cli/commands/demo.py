"""`sightline demo`."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path


def demo(
    *,
    task: str = "classification",
    out: Path | None = None,
    seed: int = 0,
    quick: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "cpu",
) -> None:
    """Train three position encodings on 48,000 small scenes at 32 px, test them from 20 to 148 px, show the result.

    Nothing is downloaded: scenes are drawn, weights start from nothing. Writes report.html and results.jsonl.

    Args:
        task: classification (what stands above), or segmentation: 12,800 scenes at 32 px, tested up to 108 px, and on
            wider scenes with objects of the same size; writes search.html too.
        out: Folder of the demonstration; runs/demo, or runs/demo_TASK of another task, unless given.
        seed: Another seed is another run: other first weights and other training scenes.
        quick: A first curve in about a minute of two free cores: 8,960 scenes, two layers for four, smaller tests, no
            knob tuned. Of segmentation too few scenes to learn from: to see that everything works.
        resume: Continue a demonstration that was stopped; what is done is not done again.
        overwrite: Delete what is in --out first.
        device: cpu, auto, cuda, mps.
    """
    from sightline.cli import next_step, progress
    from sightline.cli.demo_watch import DemoWatch
    from sightline.data.open import open_source
    from sightline.distributed import machine, signals
    from sightline.io.atomic import write_out
    from sightline.io.run_files import OTHER_PAGES, PAGE, RESULTS
    from sightline.recipes.demo import ENCODINGS, demo_jobs, demo_of
    from sightline.reports.html import write_report
    from sightline.reports.tables import print_accuracy
    from sightline.results.rows import dump_rows
    from sightline.runs import console, outputs
    from sightline.runs.report_content import compose_report
    from sightline.training.jobs import run_jobs
    from sightline.training.resume_checks import save_config
    from sightline.training.setup import resolve

    cores = machine.cpu_count()
    where = machine.resolve_device(device)
    other = () if task == "classification" else ("--task", task)
    demonstration = demo_of(task, quick=quick)
    title, notes = demonstration.title, [demonstration.note] if demonstration.note else []
    out = out or Path("_".join(("runs/demo", *other[1:])))
    jobs = demo_jobs(out, seed=seed, quick=quick, cores=cores, device=str(where), task=task)
    resolved = [resolve(job.train, open_source(job.train.data), where) for job in jobs]

    words = ("demo", *other, *(("--seed", seed) if seed else ()), *(("--quick",) if quick else ()), "--out", out)
    command = console.command_line(*words)
    way_on = console.command_line(*words, *(("--device", device) if device != "cpu" else ()), "--resume")
    with (
        outputs.RunFolder(out, outputs.Inputs(), resume, overwrite, ENCODINGS).claimed(console.warn) as lock,
        signals.resume_hint(way_on),
    ):
        for job, config in zip(jobs, resolved, strict=True):
            save_config(config, job.out)
        print(f"Three encodings ({', '.join(ENCODINGS)}), each trained on {resolved[0].images:,} scenes at 32 px,")
        for data, measured in jobs[0].measured.items():
            on = "" if data == jobs[0].train.data else f" on {data}"
            print(f"then tested{on} at {', '.join(map(str, measured.sides))} px.")
        print(f"On {machine.hardware_name(where)}.")
        for note in notes:
            print(note)
        waiting = [job for job in jobs if not (job.out / RESULTS).exists()]
        started = time.perf_counter()
        with progress.Bars() as bars:
            watch = DemoWatch(waiting, min(cores, len(jobs)), bars, out / PAGE, title=title, command=command)
            if waiting:
                print("How long it takes here is said after the first steps, in half a minute.")
                print(f"Curves as they come: {out / PAGE}", flush=True)
            run_jobs(jobs, watch, console.warn)
        lock.check()
        seconds = time.perf_counter() - started
        # A page for each data set, the first of which names the others.
        pages = dict(zip(jobs[0].measured, (PAGE, *OTHER_PAGES), strict=False))
        rows = []
        for data, name in pages.items():
            content = compose_report([job.out for job in jobs], command, data=data, title=title, notes=notes)
            links = [(page, f"The same runs on {one}") for one, page in pages.items() if one != data]
            total = max(seconds, content.seconds_total / len(jobs))
            write_report(out / name, dataclasses.replace(content, seconds_total=total, links=links))
            rows += content.rows
            if len(pages) > 1:
                print(f"{data}:")
            print_accuracy(content.rows)
        write_out(out / RESULTS, dump_rows(rows))
        expected = "" if watch.expected is None else f" ({watch.expected / 60:.1f} were expected)"
        print(f"Took {seconds / 60:.1f} minutes{expected}.")
        print(f"rows: {out / RESULTS}")
        print(f"open in a browser: {out / PAGE}")
        next_step.say_next("train", "--data", "digits", "--out", next_step.free(Path("runs/digits")))
