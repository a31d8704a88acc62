"""`sightline analyse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.runs import options


def analyse(
    *models: Annotated[
        Path, Parameter(help="One or more: folders of runs or models, hf-hub:OWNER/NAME, local-dir:DIR, timm:NAME.")
    ],
    asked: options.AnalyseOptions | None = None,
    opening: options.OpenOptions | None = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Measure and plot what happens inside models: attention, tokens and weights, at any image size.

    Writes a folder: the arrays of each model and measure (.npz), analysis.jsonl (a number for each layer and size, with
    its interval over images), figures (SVG) and analysis.html, a page that compares the models. CKA is computed for
    each pair of the first four models. For one run the folder is RUN/analysis, and sightline report shows its curves.
    """
    from importlib.util import find_spec

    from sightline.cli import next_step, progress
    from sightline.distributed import machine
    from sightline.io.run_files import INSIDE, PAGE, RESULTS
    from sightline.reports.analysis_page import print_layers
    from sightline.results.analysis import ANALYSIS_PAGE
    from sightline.results.rows import dump_rows
    from sightline.runs.analyse import analyse as analyse_runs
    from sightline.runs.analyse import open_models

    asked, opening = asked or options.AnalyseOptions(), opening or options.OpenOptions()
    machine.set_threads(threads)
    runs = open_models(models, asked, opening, device)
    with progress.Bars() as bars:
        found = analyse_runs(runs, asked, bars)
    if json:
        print(dump_rows(found.rows), end="")
        return
    print_layers(found.rows)
    print(f"arrays, rows, figures: {found.path}")
    print(f"open in a browser: {found.path / ANALYSIS_PAGE}")
    if len(models) == 1 and found.path == models[0] / INSIDE and (models[0] / RESULTS).exists():
        next_step.say_next("report", models[0], *next_step.writing("--out", models[0] / PAGE))
    elif find_spec("uvicorn") and not (opening.weights or opening.num_classes or opening.patch_size):
        next_step.say_next("explore", *models[:2], *(["--no-pretrained"] if opening.no_pretrained else []))
