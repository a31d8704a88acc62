"""What masked patch prediction is worth: fine-tuned from it, against trained from nothing, on the same images.

    python benchmarks/masked_patches.py [--pretrained 32000] [--tuned 12000] [--seeds 0 1 2] [--out OUT] [--work DIR]

The demonstration's model (`vit_micro_patch4`) with each seed: trained by the recipe `masked_patches` on embedded scenes
at 32 px, then by the recipe `scenes` on `--tuned` images from there; and by that on the same images from nothing. Rows:
`patch_loss` of the scenes of `minival` at the first checkpoint that was validated and at the end, beside the loss of
the best answer that looks at nothing (`marginal`, the entropy of the classes of all patches of these scenes); the mean
training loss of the first and last steps; top-1 of `test` for both ways; and their difference, by seed with the paired
bootstrap over images, and over seeds (Student's t; and over images, of the mean over seeds). A positive one says that
pre-training helped.

Two runs at a time with one thread each: about 15 minutes on two cores with AVX512-BF16 that have nothing else to do.
What is done of `--work` (a folder, which is kept) is not done again; without it all of it is thrown away.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measure import RESULTS, Parser, append, destination, print_table, threads, write

from sightline.cli.progress import Bars
from sightline.data.open import open_source
from sightline.distributed import machine
from sightline.errors import SightlineError
from sightline.evaluation import EvaluateConfig
from sightline.evaluation.logits import logits_name, read_logits
from sightline.hub.load import load_model
from sightline.io.run_files import CHECKPOINT, LOG, LOGITS, VALIDATION
from sightline.io.run_files import RESULTS as ROWS
from sightline.recipes import recipe
from sightline.results.rows import ResultRow, read_rows
from sightline.results.statistics import bootstrap_intervals, student_interval
from sightline.tasks.base import task_of
from sightline.training.config import ValidationConfig
from sightline.training.jobs import Job, JobProgress, run_jobs

BENCHMARK, SIDE, DATA = "masked_patches", 32, "scenes"
COLUMNS = ("what", "seed", "metric", "value", "interval", "images")


def jobs_of(folder: Path, options: argparse.Namespace) -> list[Job]:
    """Of each seed the pre-training, the training from nothing, and the fine-tuning, which waits for the first."""
    measured = EvaluateConfig((SIDE,), images=options.test)
    few = ValidationConfig(images=min(256, options.test))
    made: list[Job] = []
    for seed in options.seeds:
        common = {"seed": seed, "validation": few, "model_options": {**recipe(DATA).model_options, **options.model}}
        before = dataclasses.replace(recipe("masked_patches"), images=options.pretrained, **common)
        scratch = dataclasses.replace(recipe(DATA), images=options.tuned, **common)
        start = folder / f"masked_{seed}"
        # What the checkpoint says of the model stays.
        tuned = dataclasses.replace(scratch, init_from=str(start / CHECKPOINT), model=None)
        one = {"evaluate": measured, "threads": 1}
        first = Job(f"masked {seed}", before, out=start, **one)
        made += [
            first,
            Job(f"nothing {seed}", scratch, out=folder / f"nothing_{seed}", logits=True, **one),
            Job(f"tuned {seed}", tuned, out=folder / f"tuned_{seed}", logits=True, after=first.name, **one),
        ]
    return made


def show(bars: Bars, at: JobProgress) -> None:
    notes = () if at.loss is None else (f"loss {at.loss:.3f}",)
    bars.move(f"{at.name}: {at.phase}", at.done, at.total, *notes)


def marginal(model_folder: Path, images: int) -> float:
    """In nats, the entropy of the classes of all patches of so many scenes of `minival`: of one answer for all patches
    the best loss."""
    model = load_model(model_folder)
    task, source = task_of(model), open_source(DATA)
    found = [task.targets([source.example("minival", index, (SIDE, SIDE))])["patches"] for index in range(images)]
    counts = np.bincount(np.concatenate([one.numpy().ravel() for one in found]))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def losses(folder: Path, seed: int, about: dict[str, Any]) -> list[dict[str, Any]]:
    """How the loss of a pre-training fell."""
    curve = [json.loads(line) for line in (folder / VALIDATION).read_text().splitlines()]
    steps = [json.loads(line)["loss"] for line in (folder / LOG).read_text().splitlines()]
    few = max(1, len(steps) // 50)
    rows = []
    for what, line in (("first validation", curve[0]), ("end", curve[-1])):
        rows.append(
            {"what": f"masked patches, {what}", "metric": "patch_loss", "value": line["patch_loss"], "split": "minival"}
            | {"images": line["images"], "count": line["count"]}
        )
    for what, some, shown in (("first steps", steps[:few], 0), ("last steps", steps[-few:], about["pretrained"])):
        mean = math.fsum(some) / len(some)
        rows.append(
            {"what": f"masked patches, {what}", "metric": "loss", "value": mean, "split": "train", "images": shown}
        )
    rows.append(
        {"what": "one answer for all patches", "metric": "patch_loss", "split": "minival", "count": curve[-1]["count"]}
        | {"value": marginal(folder / CHECKPOINT, curve[-1]["count"])}
    )
    return [{**one, "seed": seed, **about} for one in rows]


def top1(folder: Path) -> tuple[ResultRow, np.ndarray]:
    """The row of all test images, and which of them were said rightly."""
    (row,) = [
        one
        for one in read_rows(folder / ROWS)
        if one.metric == "top1" and one.split == "test" and one.resolution == SIDE and not one.slices
    ]
    stored = read_logits(folder / LOGITS / logits_name(vars(row)))
    order = np.argsort(stored.indices, kind="stable")
    return row, (stored.logits.argmax(1) == stored.labels)[order]


def compared(folder: Path, seeds: Sequence[int], about: dict[str, Any]) -> list[dict[str, Any]]:
    """Top-1 of both ways, and how much more often the fine-tuned one is right."""
    rows, gaps = [], []
    for seed in seeds:
        right = {}
        for what, name in (("fine-tuned", "tuned"), ("from nothing", "nothing")):
            row, right[what] = top1(folder / f"{name}_{seed}")
            limits = row.limits()
            rows.append(
                {"what": what, "metric": "top1", "value": row.value, "interval": limits, "seed": seed, **about}
                | {"count": row.count, "split": "test", "images": about["tuned"]}
            )
        gaps.append(right["fine-tuned"].astype(np.float64) - right["from nothing"])
        value, (interval,) = float(gaps[-1].mean()), bootstrap_intervals(gaps[-1][:, None])
        rows.append(
            {"what": "difference", "metric": "top1", "value": value, "interval": interval, "seed": seed, **about}
            | {"count": len(gaps[-1]), "split": "test", "images": about["tuned"]}
        )
    value, interval = student_interval([float(gap.mean()) for gap in gaps])
    (over_images,) = bootstrap_intervals(np.mean(gaps, axis=0)[:, None])
    rows.append(
        {"what": "difference, mean", "metric": "top1", "value": value, "interval": interval, "seed": "all", **about}
        | {"interval_over_images": over_images, "count": len(gaps[0]), "split": "test", "images": about["tuned"]}
    )
    return rows


def measure(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what is not done yet, and make the rows of all of it."""
    jobs = jobs_of(folder, options)
    with Bars() as bars:
        run_jobs(jobs, lambda at: show(bars, at), at_once=options.at_once)
    about = {
        "benchmark": BENCHMARK, "model": "vit_micro_patch4", "data": DATA, "resolution": SIDE,
        "encoding": jobs[0].train.encoding, "pretrained": options.pretrained, "tuned": options.tuned,
        "hardware": machine.hardware_name(), "commit": machine.git_commit(),
    }  # fmt: skip
    rows = [row for seed in options.seeds for row in losses(folder / f"masked_{seed}", seed, about)]
    return [rounded(one) for one in (*rows, *compared(folder, options.seeds, about))]


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Values and limits with four digits after the point."""
    limits = {name: [round(one, 4) for one in row[name]] for name in row if name.startswith("interval") and row[name]}
    return {**row, **limits, "value": round(row["value"], 4)}


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--pretrained", type=threads, default=32_000, help="images of the pre-training")
    parser.add_argument("--tuned", type=threads, default=12_000, help="images of the trainings that are compared")
    parser.add_argument("--test", type=threads, default=2_000, help="images of the test")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--at-once", type=threads, default=2, help="runs at a time, of one thread each")
    parser.add_argument("--work", type=Path, help="a folder for the runs, which are kept")
    parser.add_argument("--small", action="store_true", help="a model of one layer: to see that all of it works")
    parser.add_argument(
        "--out", type=Path, help=f"replace this file; else added to benchmarks/results/{BENCHMARK}.jsonl"
    )
    options = parser.parse_args()
    options.model = {"depth": 1, "dim": 48, "heads": 4} if options.small else {}
    path = destination(options.out, RESULTS / f"{BENCHMARK}.jsonl")
    try:
        if options.work is None:
            with tempfile.TemporaryDirectory() as folder:
                rows = measure(Path(folder), options)
        else:
            options.work.mkdir(parents=True, exist_ok=True)
            rows = measure(options.work, options)
    except SightlineError as error:
        parser.error(str(error))
    print_table(COLUMNS, rows)
    (write if options.out else append)(rows, path)
    print(f"rows: {path}")


if __name__ == "__main__":
    main()
