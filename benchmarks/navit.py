"""Images of every size, packed, against one size: the same model, optimizer and operations (NaViT section 3.1).

    python benchmarks/navit.py [--seeds 0 1 2] [--out runs/navit] [--figure FILE] [--rows OUT]

Trains the recipes `vit_scenes` and `navit_scenes` with each seed, tests them on square scenes from 0.5 to 2 times
32 px, and says what came out: images seen, the mean over the resolutions, and the paired difference with its 95 %
interval over seeds. What is done is not done again. About ten minutes on two cores that have nothing else to do.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measure import RESULTS, Parser, destination, print_table, write
from recipe_plot import RecipeCurve, interval, recipe_plot

from sightline.distributed import machine
from sightline.evaluation import EvaluateConfig
from sightline.recipes import recipe
from sightline.reports.style import standalone
from sightline.results.rows import read_rows
from sightline.training.jobs import Job, JobProgress, run_jobs
from sightline.training.log import read_log

_RECIPES = ("vit_scenes", "navit_scenes")
_TRAINED = 32
_RESOLUTIONS = (16, 20, 24, 28, 32, 40, 48, 56, 64)


def jobs(seeds: Sequence[int], out: Path, images: int) -> list[Job]:
    """A run for each recipe and seed; the longer ones first."""
    test = EvaluateConfig(_RESOLUTIONS, ("test",), images=images)
    return [
        Job(f"{name}_{seed}", dataclasses.replace(recipe(name), seed=seed), test, out / f"{name}_{seed}", threads=1)
        for name in reversed(_RECIPES)
        for seed in seeds
    ]


class _Said:
    """Says each quarter of a run, with the minutes that it took and that the rest will take."""

    def __init__(self, runs: int) -> None:
        self.runs, self.started, self.said = runs, 0.0, ("", 0)

    def __call__(self, at: JobProgress) -> None:
        now = time.perf_counter()
        if self.said[0] != at.phase:
            self.started, self.said = now, (at.phase, 0)
        quarter = 4 * at.done // at.total
        if quarter > self.said[1]:
            self.said = (at.phase, quarter)
            gone = (now - self.started) / 60
            left = gone / at.done * (at.total - at.done)
            words = f"{at.phase} {at.name} (of {self.runs} runs): {25 * quarter} %"
            print(f"{words}, {gone:.1f} min, about {left:.1f} to go", flush=True)


def rows_of(name: str, seed: int, folder: Path) -> list[dict[str, Any]]:
    """The rows of a run, with what it was shown and what that cost."""
    last = read_log(folder / "log.jsonl")[-1]
    spent = {"images_seen": last["images"], "tokens_seen": last["tokens"], "flops": last["flops"]}
    return [
        {"benchmark": "navit", "recipe": name, **spent, **row.record()}
        for row in read_rows(folder / "results.jsonl")
        if row.metric == "top1" and not row.slices
    ]


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the runs; 0 1 2")
    parser.add_argument("--images", type=int, default=2000, help="test scenes at each resolution; 2000")
    parser.add_argument("--out", type=Path, default=Path("runs/navit"), help="folder of the runs; runs/navit")
    parser.add_argument("--figure", type=Path, help="write the curves as SVG")
    parser.add_argument("--rows", type=Path, help="the rows; benchmarks/results/navit.jsonl unless given")
    chosen = parser.parse_args()
    path = destination(chosen.rows, RESULTS / "navit.jsonl")
    todo = jobs(chosen.seeds, chosen.out, chosen.images)
    with ThreadPoolExecutor(max_workers=machine.cpu_count()) as pool:
        for done in [pool.submit(run_jobs, [job], _Said(len(todo))) for job in todo]:
            done.result()
    rows = [
        row for name in _RECIPES for seed in chosen.seeds for row in rows_of(name, seed, chosen.out / f"{name}_{seed}")
    ]
    write(rows, path)
    curves = {}
    for name in _RECIPES:
        own = [row for row in rows if row["recipe"] == name]
        seen = [next(row["images_seen"] for row in own if row["seed"] == seed) for seed in chosen.seeds]
        top1 = {side: [row["value"] for row in own if row["resolution"] == side] for side in _RESOLUTIONS}
        curves[name] = RecipeCurve(top1, seen)
    table = [
        {"recipe": name, "resolution": side, "mean": round(interval(values)[0], 4), "half_width": interval(values)[1]}
        for name, curve in curves.items()
        for side, values in curve.top1.items()
    ]
    print_table(("recipe", "resolution", "mean", "half_width"), table)
    vit, navit = (curves[name] for name in _RECIPES)
    for name, curve in curves.items():
        mean, half = interval(curve.means())
        print(f"{name}: {curve.images} images, mean over resolutions {mean:.4f} +- {half:.4f}")
    ratio = [a / b for a, b in zip(navit.images, vit.images, strict=True)]
    mean, half = interval([a - b for a, b in zip(navit.means(), vit.means(), strict=True)])
    print(f"images seen: {min(ratio):.2f} to {max(ratio):.2f} times as many; difference {mean:+.4f} +- {half:.4f}")
    if chosen.figure is not None:
        chosen.figure.parent.mkdir(parents=True, exist_ok=True)
        chosen.figure.write_text(standalone(recipe_plot(curves, train_resolution=_TRAINED)), encoding="utf-8")
        print(f"figure: {chosen.figure}")
    print(f"rows: {path} ({json.dumps({'runs': len(todo), 'rows': len(rows)})})")


if __name__ == "__main__":
    main()
