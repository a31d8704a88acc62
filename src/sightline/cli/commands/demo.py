"""`sightline demo`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sightline.runs.demo import Demonstration


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
    """Train three position encodings on drawn scenes at 32 px, and test them at other sizes.

    Nothing is downloaded: images are drawn, and training starts from random weights. Writes report.html and
    results.jsonl.

    Args:
        task: classification (48,000 scenes, tested up to 148 px) or segmentation (12,800 scenes, tested up to 108 px,
            and on scenes that grow while their objects keep their size; also writes search.html).
        out: The output folder. Default: runs/demo, for another task runs/demo_TASK.
        seed: Seed of the initial weights and of the training scenes.
        quick: A first curve in one to a few minutes: 8,960 scenes, two layers instead of four, smaller tests, no
            tuning. For segmentation too few scenes to learn from, only to see that everything works.
        resume: Continue a demonstration; finished runs are kept.
        overwrite: Delete what is in --out first.
        device: cpu, auto, cuda, mps.
    """
    from sightline.cli import next_step, progress
    from sightline.io.run_files import PAGE, RESULTS
    from sightline.reports.results_tables import print_accuracy
    from sightline.runs.demo import demo as demonstrate

    with progress.Bars() as bars:
        done = demonstrate(
            task, out, seed=seed, quick=quick, resume=resume, overwrite=overwrite, device=device, begin=_say,
            observe=progress.of_jobs(bars),
        )  # fmt: skip
    for data, rows in done.rows.items():
        if len(done.rows) > 1:
            print(f"{data}:")
        print_accuracy(rows)
    print(f"Took {done.seconds / 60:.1f} minutes.")
    print(f"rows: {done.out / RESULTS}")
    print(f"open in a browser: {done.out / PAGE}")
    data = "digits" if importlib.util.find_spec("sklearn") else "scenes"
    next_step.say_next("train", "--data", data, "--out", next_step.free(Path("runs", data)))


def _say(about: Demonstration) -> None:
    from sightline.distributed import machine

    names = ", ".join(job.name for job in about.jobs)
    print(f"Three encodings ({names}), each trained on {about.images:,} scenes at 32 px,")
    for data, measured in about.jobs[0].measured.items():
        on = "" if data == about.jobs[0].train.data else f" on {data}"
        print(f"then tested{on} at {', '.join(map(str, measured.sides))} px.")
    print(f"On {machine.hardware_name(about.device)}.", flush=True)
    if about.note:
        print(about.note, flush=True)
