"""`sightline demo`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from pathlib import Path


def demo(
    *,
    out: Path = Path("runs/demo"),
    seed: int = 0,
    quick: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    take_over: bool = False,
    device: str = "cpu",
) -> None:
    """Train three position encodings on 48,000 small scenes at 32 px, test them from 20 to 148 px, show the result.

    Nothing is downloaded: scenes are drawn, weights start from nothing. Writes report.html and results.jsonl.

    Parameters
    ----------
    out
        Folder of the demonstration.
    seed
        Another seed is another run: other first weights and other training scenes.
    quick
        Under a minute, with too few scenes to learn from: to see that everything works.
    resume
        Continue a demonstration that was stopped; what is done is not done again.
    overwrite
        Delete what is in --out first.
    take_over
        Take the folder also from a demonstration that seems to be at work in it; that one ends.
    device
        cpu, auto, cuda, mps.
    """
    from sightline import runtime, signals
    from sightline.cli.guard import Inputs
    from sightline.cli.output import claim_folder, write_text
    from sightline.cli.progress import Bars
    from sightline.cli.run_config import save_config
    from sightline.cli.run_folder import compose_report
    from sightline.data.discovery import open_source
    from sightline.recipes.demo import ENCODINGS, RESOLUTIONS, demo_jobs
    from sightline.reports.html import write_report
    from sightline.reports.tables import print_accuracy
    from sightline.results import dump_rows
    from sightline.training.estimate import estimate_seconds
    from sightline.training.loop import resolve
    from sightline.training.side_by_side import JobProgress, run_jobs

    cores = runtime.cores()
    where = runtime.resolve_device(device)
    jobs = demo_jobs(out, seed=seed, quick=quick, cores=cores, device=str(where))
    jobs = [dataclasses.replace(job, take_over=take_over) for job in jobs]
    resolved = [resolve(job.train, open_source(job.train.data), where) for job in jobs]

    words = ["sightline", "demo", *(["--seed", str(seed)] if seed else []), *(["--quick"] if quick else [])]
    words += ["--out", str(out)]
    again = [*words, *(["--device", device] if device != "cpu" else []), "--resume"]

    def warn(line: str) -> None:
        print(f"sightline: warning: {line}", file=sys.stderr)

    with (
        claim_folder(
            out, inputs=Inputs(), resume=resume, overwrite=overwrite, take_over=take_over, inside=ENCODINGS, warn=warn
        ) as owner,
        signals.way_on(again),
    ):
        for job, config in zip(jobs, resolved, strict=True):
            save_config(config, job.out)
        images = resolved[0].images
        print(f"Three encodings ({', '.join(ENCODINGS)}), each trained on {images:,} scenes at 32 px,")
        print(f"then tested at {', '.join(map(str, RESOLUTIONS))} px. On {runtime.hardware(where)}.")
        if quick:
            print("Quick: under a minute, with too few scenes to learn from.", flush=True)
        elif not all((job.out / "results.jsonl").exists() for job in jobs):
            # A third for drawing scenes, checkpoints and sharing the cores.
            expected = 4 / 3 * estimate_seconds(jobs[0]) * len(jobs) / min(cores, len(jobs))
            print(f"Expected to take about {expected / 60:.0f} minutes here.", flush=True)
        started = time.perf_counter()
        with Bars() as bars:

            def observe(at: JobProgress) -> None:
                verb = "training" if at.phase == "train" else "testing "
                note = f"loss {at.loss:.2f}" if at.loss is not None else ""
                note += f", minival {at.validated:.0%}" if at.validated is not None else ""
                bars.move(f"{verb} {at.name:<11}", at.done, at.total, note)

            run_jobs(jobs, observe, warn)
        owner.check()
        seconds = time.perf_counter() - started
        notes = [] if quick is False else ["A quick run: far too few scenes to learn from; its curves say nothing."]
        content = compose_report(
            [job.out for job in jobs],
            shlex.join(words),
            title="Trained at 32 pixels, tested from 20 to 148",
            notes=notes,
        )
        content = dataclasses.replace(
            content, seconds_total=max(seconds, content.seconds_total / min(cores, len(jobs)))
        )
        write_text(out / "results.jsonl", dump_rows(content.rows))
        write_report(out / "report.html", content)
        print_accuracy(content.rows)
        print(f"Took {seconds / 60:.1f} minutes.")
        print(f"report: {out / 'report.html'}")
        print(f"rows:   {out / 'results.jsonl'}")
