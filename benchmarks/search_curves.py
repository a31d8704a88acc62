"""What several trainings of each encoding reach at each size, beside the same images shrunk: means over seeds.

    for seed in 0 1 2; do for encoding in lookhere_90 rope_axial learned_1d; do
        run=runs/segment/${encoding}_$seed
        sightline train --recipe segment_scenes --encoding $encoding --seed $seed --threads 1 --out $run
        sightline evaluate $run --resolutions 64 --images 600
        sightline evaluate $run --resolutions 108 --images 300
        sightline evaluate $run --data scenes:search --resolutions 32,64 --images 600
        sightline evaluate $run --data scenes:search --resolutions 96,128 --images 150
    done; done
    python benchmarks/search_curves.py runs/segment/* [--metric miou] [--out OUT]

About 5 minutes of a core a run. Contrastive runs likewise, in half an hour a run:

    run=runs/words/${encoding}_$seed
    sightline train --recipe contrastive_scenes --encoding $encoding --seed $seed --threads 1 --out $run
    sightline evaluate $run --resolutions 32,64,96 --images 1000 --measures zero_shot
    sightline train --recipe scenes --data scenes:pairs --images 96000 --batch-size 64 --parts null \\
        --encoding $encoding --seed $seed --threads 1 --out runs/words/class_${encoding}_$seed
    sightline evaluate runs/words/class_${encoding}_$seed --resolutions 32,64,96 --images 1000
    python benchmarks/search_curves.py runs/words/* --out benchmarks/results/words.jsonl \\
        --metric zero_shot_top1 top1 image_to_text_recall_at_1 text_to_image_recall_at_1

Intervals are of Student's t over seeds (95 %): how much another training would differ.
Differences of encodings are taken seed by seed. Objects of `scenes:pairs` grow with the image; those of `scenes:search`
stay as large in pixels, and its extent grows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.stats import t

from sightline.results.rows import ResultRow, read_rows

Place = tuple[str, int, int | None]
"""Data, side in pixels, and the side that images were shrunk to."""

_SPLITS = {"test": "", "heldout": ", held out"}


def with_interval(values: Sequence[float]) -> tuple[float, list[float] | None]:
    """The mean, and where the mean of all seeds lies with 95 %; None of one."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    reach = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, [mean - reach, mean + reach]


def measured(folders: Sequence[Path], metric: str) -> dict[str, dict[Place, dict[int, ResultRow]]]:
    """Encoding -> place -> seed -> the row of all images there."""
    found: dict[str, dict[Place, dict[int, ResultRow]]] = {}
    for folder in folders:
        for row in read_rows(folder / "results.jsonl"):
            if row.metric == metric and not row.slices and row.resolution is not None and row.split in _SPLITS:
                place = row.data + _SPLITS[row.split], row.resolution, row.shrunk
                seeds = found.setdefault(row.encoding, {}).setdefault(place, {})
                if row.seed in seeds:
                    raise SystemExit(f"{folder}: seed {row.seed} of {row.encoding} is there twice")
                seeds[row.seed] = row
    return found


def summary(
    found: dict[str, dict[Place, dict[int, ResultRow]]], metric: str, benchmark: str = "search_curves"
) -> list[dict[str, Any]]:
    """One row of each encoding and place, and one of each two encodings where images are as they are."""
    rows: list[dict[str, Any]] = []

    def add(name: str, place: Place, values: dict[int, float], some: list[ResultRow]) -> None:
        mean, interval = with_interval(list(values.values()))
        said = {"benchmark": benchmark, "encoding": name, "metric": metric, "value": mean, "interval": interval}
        where = {"data": place[0], "resolution": place[1], "shrunk": place[2], "images": some[0].images}
        commits = sorted({one.commit for one in some if one.commit})
        rows.append(said | where | {"seeds": values, "commit": ", ".join(commits), "hardware": some[0].hardware})

    for name, places in found.items():
        for place, seeds in sorted(places.items(), key=lambda item: (*item[0][:2], item[0][2] or 0)):
            add(name, place, {seed: one.value for seed, one in sorted(seeds.items())}, list(seeds.values()))
    for first, second in itertools.combinations(found, 2):
        for place in (place for place in found[first] if place[2] is None):
            one, other = found[first][place], found[second].get(place, {})
            common = sorted(one.keys() & other.keys())
            if common:
                gaps = {seed: one[seed].value - other[seed].value for seed in common}
                add(f"{first} less {second}", place, gaps, [one[seed] for seed in common])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--metric", nargs="+", default=["miou"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    benchmark = "search_curves" if options.out is None else options.out.stem
    folders = [one for one in options.runs if (one / "results.jsonl").exists()]
    rows = [row for metric in options.metric for row in summary(measured(folders, metric), metric, benchmark)]
    if not rows:
        raise SystemExit(f"no rows of {', '.join(options.metric)} in {', '.join(map(str, options.runs))}")
    shown = Table("metric", "data", "px", "shrunk to", "", "value", "95 % over seeds", "seeds")
    for row in rows:
        between = "" if row["interval"] is None else "{:.3f} to {:.3f}".format(*row["interval"])
        where = row["data"], str(row["resolution"]), "" if row["shrunk"] is None else str(row["shrunk"])
        shown.add_row(row["metric"], *where, row["encoding"], f"{row['value']:.3f}", between, str(len(row["seeds"])))
    Console(width=120).print(shown)
    if options.out is not None:
        options.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
