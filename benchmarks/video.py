"""Positions in space and time: models trained on clips of 4 frames, tested on clips of 4, 8 and 16.

    python benchmarks/video.py [--encodings lookhere_90 factorized rope_axial] [--seeds 0] [--images 16000] [--out OUT]

`moving`, the embedded scenes in motion: which of eight directions a glyph moves in, which one frame does not tell. The
recipe of that data (vit_micro_patch4, tubelets of 2 frames x 4 x 4 pixels, 32 px, 4 frames) but for the encoding, as
many clips for each, knobs at their defaults. Longer clips show the same motion, at the same speed, for longer. Each run
in a process of its own with one thread, two at a time: about a quarter of an hour for three on two idle cores with
AVX512-BF16. Rows as `sightline evaluate` writes them go to benchmarks/results/video.jsonl (those of the same run are
replaced), the figure beside them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import RESULTS, Parser, destination, in_fresh_process, threads

from sightline.data.sizes import FrameSampling
from sightline.data.sources.moving import DIRECTIONS
from sightline.distributed.machine import set_threads
from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.io.atomic import write_out
from sightline.recipes import recipe
from sightline.reports import style, words
from sightline.reports.figures import guessing, look_of
from sightline.reports.lines import Panel, Trained, lines_figure, measured_line, value_range
from sightline.reports.series import PlotLine, Study
from sightline.results.rows import ResultRow, dump_rows, read_rows
from sightline.training import train
from sightline.training.run import open_run

if TYPE_CHECKING:
    pass

# The new encoding beside factorised positions (ViT's tables, one an axis, summed) and rotary ones.
ENCODINGS = ("lookhere_90", "factorized", "rope_axial")
FRAMES = (4, 8, 16)


def measure(encoding: str, seed: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """The `rows` of one run, as they are written."""
    set_threads(chosen.threads)
    config = dataclasses.replace(
        recipe("moving"), encoding=encoding, seed=seed, images=chosen.images, resolution=chosen.side, validation=None
    )
    rows: list[ResultRow] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / encoding
        train(config, out, test=False, device="cpu")
        run = open_run(out)
        tested = EvaluateConfig((run.side,), images=chosen.tested)
        for count in FRAMES:
            source = run.source.with_view(frames=FrameSampling(count))
            rows += evaluate(run.model, source, tested, dataclasses.replace(run.identity, seed=seed))
    return {"rows": [row.record() for row in rows]}


def frame_lines(rows: Sequence[ResultRow]) -> tuple[list[PlotLine], Study] | None:
    """A line for each run whose clips were shown with several numbers of frames at one size, that of its training where
    it was measured there; its points by the number of frames. None where there is no such run.

    Raises:
        InputError: as `Study.of`.
    """
    plain = [row for row in rows if row.frames is not None and row.resolution is not None and row.shrunk is None]
    if not plain:
        return None
    sides = {row.run: row.train_resolution for row in plain}
    for run in sides:
        there = {row.resolution for row in plain if row.run == run and row.resolution is not None}
        sides[run] = sides[run] if sides[run] in there else max(there)
    chosen = [row for row in plain if row.resolution == sides[row.run]]
    counts = sorted({row.frames for row in chosen if row.frames is not None})
    whole = Study.of([replace(row, frames=None) for row in chosen])
    found: dict[str, PlotLine] = {}
    for count in counts:
        # Each number alone: a study has one row for a run at a size.
        here = [replace(row, frames=None) for row in chosen if row.frames == count]
        for line in Study.of(here, whole.order).lines(whole.main.metric, split=whole.main.split):
            points = {**(found[line.label].points if line.label in found else {}), count: line.points[sides[line.run]]}
            found[line.label] = replace(line, points=points)
    several = [line for line in found.values() if len(line.points) > 1]
    return (several, whole) if several else None


def by_frames(
    rows: Sequence[ResultRow], *, trained: int | None = None, chance: float | None = None, narrow: bool = False
) -> str:
    """The main metric (bars: 95 %) by the number of frames of each clip, spaced by doublings, one line a run.

    Args:
        trained: frames of the clips of the training, where all runs had as many: a dotted line.
        chance: what guessing would give, a fraction.

    Raises:
        InputError: no run was shown clips with several numbers of frames at one size.
    """
    found = frame_lines(rows)
    if found is None:
        raise InputError("no rows are of clips with several numbers of frames at one size")
    chosen, study = found
    counts = sorted({count for line in chosen for count in line.points})

    panel = Panel(
        [measured_line(line.label, look_of(line, study.order), line.points) for line in chosen],
        x_label="test frames of each clip",
        y_label=words.axis(study.main),
        x_scale="log2",
        x_ticks={count: str(count) for count in counts},
        y_range=value_range(study.main),
        level=guessing(chance),
        trained=[] if trained is None else [Trained(f"trained at {trained} frames", style.INK, trained, trained)],
    )
    return lines_figure([panel], height=3.4, narrow=narrow)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--encodings", nargs="+", default=list(ENCODINGS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED")
    parser.add_argument("--images", type=int, default=16_000, help="clips that each run is trained on")
    parser.add_argument("--tested", type=int, default=1_000, help="clips of `test`, the same at each number of frames")
    parser.add_argument("--side", type=int, default=32, help="of the frames, in pixels")
    parser.add_argument("--at-once", type=int, default=2, help="runs at a time")
    parser.add_argument("--threads", type=threads, default=1, help="threads of torch of each run")
    parser.add_argument("--out", type=Path, help="replace this file, and write the figure beside it")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure is not None:
        print(json.dumps(measure(chosen.measure, chosen.seeds[0], chosen)))
        return
    path = destination(chosen.out, RESULTS / "video.jsonl")

    def run(work: tuple[str, int]) -> list[dict[str, Any]]:
        encoding, seed = work
        words = {
            "--measure": encoding, "--seeds": seed, "--images": chosen.images, "--tested": chosen.tested,
            "--side": chosen.side, "--threads": chosen.threads,
        }  # fmt: skip
        made = in_fresh_process(__file__, [str(word) for pair in words.items() for word in pair])["rows"]
        top1 = ", ".join(
            f"{100 * row['value']:.1f} at {row['frames']}"
            for row in made
            if row["metric"] == "top1" and not row["slices"]
        )
        print(f"{encoding}, seed {seed}: top-1 in % {top1} frames", flush=True)
        return made

    work = [(encoding, seed) for seed in chosen.seeds for encoding in chosen.encodings]
    with ThreadPoolExecutor(chosen.at_once) as pool:
        written = [row for rows in pool.map(run, work) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "rows.jsonl"
        fresh.write_text("".join(json.dumps(row) + "\n" for row in written), encoding="utf-8")
        rows = read_rows(fresh)
    if chosen.out is None and path.exists():
        kept = {(row.run, row.seed) for row in rows}
        rows = [*(row for row in read_rows(path) if (row.run, row.seed) not in kept), *rows]
    write_out(path, dump_rows(rows).encode())
    write_out(
        path.with_suffix(".svg"), by_frames(rows, trained=recipe("moving").frames, chance=1 / len(DIRECTIONS)).encode()
    )
    print(f"rows: {path}\nfigure: {path.with_suffix('.svg')}")


if __name__ == "__main__":
    main()
