"""How long `sightline demo` takes, and what it shows: this source against that of another commit.

    git worktree add ../before COMMIT
    python benchmarks/demo_time.py --against ../before [--seeds 0 1 2] [--out OUT]
    python benchmarks/demo_time.py --against ../before --quick [--rounds 7] [--out OUT]

Whole, both demonstrations run one after the other for each seed, the one that begins in turn, on all cores that there
are (about 10 minutes each on two): `time` rows hold the ratio of the seconds of the clock, and of those of the
processors, this source's over the other's (below 1: this one is faster), a round a seed. `curve` rows hold for each
encoding and size both top-1 of the seeds, their difference, and its interval: the mean's, by Student's t over seeds
whose images are paired, and half an image at least; `same` says that 0 lies within.

`--quick` times parts in interleaved rounds on one thread, in seconds of the processor, and says how many times as fast
this source is: a run of 30 steps, its start and its checkpoint too, with the drawing of its images (which a
demonstration shares among its runs: that shows in a whole one alone), and a test at 32, 64 and 148 px with the search
for the knob, of few images.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, Against, append, beside, destination, print_table, questions, write

from sightline.distributed import machine

_STEPS, _SIDES = 30, (32, 64, 148)
# Of Student's t, 97.5 %, by degrees of freedom.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def serve() -> None:
    """Answer each line of the input, "encoding part", with the processor seconds that it took."""
    from sightline.data.open import open_source
    from sightline.evaluation import evaluate
    from sightline.evaluation.measure import RunInfo
    from sightline.recipes.demo import demo_jobs
    from sightline.training import train

    jobs = {job.name: job for job in demo_jobs(Path(), seed=0, quick=False, cores=2)}
    models: dict[str, Any] = {}
    for line in questions():
        name, part = line.split()
        config = replace(jobs[name].train, images=_STEPS * 32, validation=None, checkpoint_every=10**9)
        tests = replace(jobs[name].evaluate, resolutions=_SIDES, images=60, images_beyond=(64, 8), tune_images=8)
        started = time.process_time()
        if part == "steps" or name not in models:
            with tempfile.TemporaryDirectory() as folder:
                models[name] = train(config, Path(folder) / "run", test=False, device="cpu").model
        if part == "test":
            evaluate(models[name], open_source(config.data), tests, RunInfo(name, config.data, 32, 0))
        print(time.process_time() - started, flush=True)


def whole(chosen: Any) -> None:
    """Both demonstrations of each seed, and rows of both."""
    path = destination(chosen.out, RESULTS / "demo_time.jsonl")
    trees = {"here": Path(__file__).parent.parent, "there": chosen.against.resolve()}
    commits = {which: _commit(tree) for which, tree in trees.items()}
    took: dict[str, list[dict[str, float]]] = {which: [] for which in trees}
    found: dict[str, list[dict[tuple[str, int], float]]] = {which: [] for which in trees}
    for number, seed in enumerate(chosen.seeds):
        for which in sorted(trees, reverse=bool(number % 2)):
            with tempfile.TemporaryDirectory() as folder:
                took[which].append(_run(trees[which], seed, Path(folder) / "demo"))
                found[which].append(_curves(Path(folder) / "demo" / "results.jsonl"))
            said = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took[which][-1].items())
            print(f"seed {seed}, {which} ({commits[which]}): {said}", flush=True)
    about = {
        "benchmark": "demo_time", "commit": commits["here"], "against": commits["there"], "seeds": chosen.seeds,
        "hardware": machine.hardware_name("cpu"), "torch": torch.__version__,
    }  # fmt: skip
    rows = [_time_row(about, name, took) for name in ("wall", "processor")]
    rows += [_curve_row(about, key, found) for key in found["here"][0]]
    print_table(("what", "ratio", "ratios", "here", "there"), rows[:2])
    print_table(("encoding", "resolution", "here", "there", "difference", "interval", "same"), rows[2:])
    print(f"{sum(one['same'] for one in rows[2:])} of {len(rows[2:])} points are the same within their intervals")
    (append if chosen.out is None else write)(rows, path)
    print(f"rows: {path}")


def _commit(tree: Path) -> str:
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _run(tree: Path, seed: int, out: Path) -> dict[str, float]:
    """Seconds of the clock and of the processors that a demonstration took, its start and its report too."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "sightline", "demo", "--seed", str(seed), "--out", str(out)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{tree}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return {"wall": wall, "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def _curves(path: Path) -> dict[tuple[str, int], float]:
    """Top-1 on the test split, of what is not shrunk, by encoding and size."""
    rows = map(json.loads, path.read_text().splitlines())
    return {
        (row["run"], row["resolution"]): row["value"]
        for row in rows
        if row["metric"] == "top1" and row["split"] == "test" and not row.get("shrunk") and not row.get("slices")
    }


def _time_row(about: dict[str, Any], name: str, took: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    here, there = ([one[name] for one in took[which]] for which in ("here", "there"))
    ratios = [mine / theirs for mine, theirs in zip(here, there, strict=True)]
    return about | {
        "kind": "time", "what": name, "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(one, 3) for one in ratios],
        "here": [round(one, 1) for one in here], "there": [round(one, 1) for one in there],
    }  # fmt: skip


def _curve_row(
    about: dict[str, Any], key: tuple[str, int], found: dict[str, list[dict[tuple[str, int], float]]]
) -> dict[str, Any]:
    here, there = ([one[key] for one in found[which]] for which in ("here", "there"))
    low, high = paired_interval([mine - theirs for mine, theirs in zip(here, there, strict=True)])
    return about | {
        "kind": "curve", "encoding": key[0], "resolution": key[1], "here": here, "there": there,
        "difference": round(statistics.mean(here) - statistics.mean(there), 4),
        "interval": [round(low, 4), round(high, 4)], "same": low <= 0 <= high,
    }  # fmt: skip


def paired_interval(differences: list[float], least: float = 0.0005) -> tuple[float, float]:
    """Where the mean of some differences lies with 95 %, by Student's t; no narrower than half an image of 1,000. Of a
    single one nothing is known but that."""
    mean, count = statistics.mean(differences), len(differences)
    half = _T.get(count - 1, 1.96) * statistics.stdev(differences) / math.sqrt(count) if count > 1 else math.inf
    return mean - max(half, least), mean + max(half, least)


def main() -> None:
    parser = Against(__doc__, "demo_time")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the whole demonstrations")
    parser.add_argument("--quick", action="store_true", help="time the parts alone, some minutes")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.side:
        serve()
    elif chosen.quick:
        cases = [
            (f"{name} {part}", {"encoding": name, "part": part})
            for name in ("lookhere_90", "rope_axial", "learned_1d")
            for part in ("steps", "test")
        ]
        beside("demo_time", __file__, chosen, cases, ("encoding", "part", "ratio", "interval", "subject_ms"))
    else:
        whole(chosen)


if __name__ == "__main__":
    main()
