"""Swin on embedded glyphs: RoPE-Mixed beside its own relative bias, and windows that grow with the image or do not.

    python benchmarks/swin_embedded.py [--runs runs/swin_embedded] [--figure FILE.svg] [--quick] [--out OUT]

`swin_micro_patch4` (two stages, windows of 4) is trained with each encoding as the demonstration trains (48,000 glyphs
at 32 px, one seed) and tested on the same scenes at 32, 64 and 148 px (1, 2 and 4.6 times). The same weights are tested
again with windows that grow as the image does: frequencies are counted on, the table of displacements is resized by
BEiT's rule. A row of `top1` has its interval; the figure is `reports.figures.by_resolution`. Both at once take about 15
minutes on two idle cores. `--quick` shows 640 images and tests on 60.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

from measure import Parser, print_table

from sightline.distributed import machine
from sightline.evaluation.measure import EvaluateConfig
from sightline.hub.load import load_model, save_model
from sightline.io.run_files import RESULTS
from sightline.recipes.embedded import scenes
from sightline.reports.figures import by_resolution
from sightline.reports.lines import lines_figure
from sightline.reports.series import Study
from sightline.results.rows import ResultRow, read_rows
from sightline.training.jobs import Job, run_jobs

ENCODINGS = ("rope_mixed", "rpe_learned")
SIDES = (32, 64, 148)


def jobs(runs: Path, *, quick: bool, threads: int) -> list[Job]:
    """One training an encoding."""
    train = dataclasses.replace(scenes(), model="swin_micro_patch4", images=640 if quick else 48_000, seed=0)
    test = EvaluateConfig(SIDES, ("test",), images=60 if quick else 1000, images_beyond=(64, 6 if quick else 300))
    return [Job(one, dataclasses.replace(train, encoding=one), test, runs / one, threads) for one in ENCODINGS]


def grown(runs: Path, encoding: str) -> Path:
    """The weights of a run with windows that grow."""
    folder, model = runs / f"{encoding}_grows", load_model(runs / encoding)
    options = {**model.config.architecture_options, "window_grows": True}
    again = type(model)(model.config.replace(architecture_options=options))
    again.load_state_dict(model.state_dict())
    if not folder.exists():
        save_model(again, folder)
    return folder


def measured(folder: Path, *, quick: bool, threads: int) -> list[ResultRow]:
    """The rows of a model that was not trained as it is tested, by the command, of as many images a side as `jobs`."""
    # A folder of weights holds its own files alone.
    beside = folder.with_name(f"{folder.name}_measured")
    found: list[ResultRow] = []
    for name, sides, images in (("small", SIDES[:2], 60 if quick else 1000), ("large", SIDES[2:], 6 if quick else 300)):
        words = ["--data", "scenes", "--images", str(images), "--threads", str(threads), "--overwrite"]
        command = [
            sys.executable,
            "-m",
            "sightline",
            "evaluate",
            str(folder),
            "--resolutions",
            ",".join(map(str, sides)),
        ]
        subprocess.run([*command, *words, "--out", str(beside / name)], check=True)
        found += read_rows(beside / name / RESULTS)
    return found


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/swin_embedded"), help="folder of the trainings")
    parser.add_argument("--figure", type=Path, help="an SVG of top-1 by resolution; else beside the runs")
    parser.usual("swin_embedded", "640 training images, 60 and 6 to test")
    asked = parser.begin()
    made = jobs(asked.runs, quick=asked.quick, threads=asked.threads)
    run_jobs(made, lambda _: None)
    named: list[tuple[str, str, ResultRow]] = []
    for job in made:
        named += [(job.name, "fixed", row) for row in read_rows(job.out / RESULTS)]
        folder = grown(asked.runs, job.name)
        named += [(job.name, "grows", row) for row in measured(folder, quick=asked.quick, threads=asked.threads)]
    # Of all images, at the size that they are shown at.
    top1 = [
        (name, window, row)
        for name, window, row in named
        if row.metric == "top1" and row.split == "test" and not row.slices and row.shrunk is None
    ]
    rows: list[dict[str, Any]] = [
        {
            "benchmark": "swin_embedded",
            "model": "swin_micro_patch4",
            "encoding": name,
            "window": window,
            "seed": 0,
            "resolution": row.resolution,
            "top1": row.value,
            "interval": row.limits(),
            "images": row.count,
            "hardware": machine.hardware_name(),
            "commit": machine.git_commit(),
        }
        for name, window, row in top1
    ]
    parser.save(rows)
    print_table(("encoding", "window", "resolution", "top1", "images"), rows)
    figure = asked.figure or asked.runs / "swin_embedded.svg"
    labelled = [dataclasses.replace(row, encoding=f"{name}, window {window}") for name, window, row in named]
    figure.write_text(lines_figure(by_resolution(Study.of(labelled)), height=4.0))
    print(f"figure: {figure}")


if __name__ == "__main__":
    main()
