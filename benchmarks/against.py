"""This source beside that of another commit: training steps, forward, predict, packs of tiny images.

    git worktree add ../before 33b8073
    python benchmarks/against.py ../before [--rounds 9] [--kinds uniform_step,predict] [--threads 1] [--out OUT]

Each side is a process of its own, which imports its own `src`; in each round both measure every kind, in turn, the
one that begins changing. `time_over_before` is this side's time over the other's, the median of the rounds' ratios, so
above 1 this one is slower; `low` to `high` holds the median with 95 % (by rank, no distribution assumed).
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_KINDS = ("uniform_step", "packed_step", "forward_224", "forward_1024", "predict", "tiny_packs", "tiny_packs_step")
_PHOTOS = 200


def _models() -> Any:
    import torch

    from sightline.models import create_model

    torch.manual_seed(0)
    return create_model


def _steps(recipe: str, folder: Path) -> Callable[[], float]:
    """Seconds of a step: the median of those of a short training, from what the loop itself says."""
    import dataclasses

    from sightline.recipes import recipe as named
    from sightline.training.loop import train

    config = dataclasses.replace(named(recipe), images=640, flops=None, validation=None, checkpoint_every=10**6)
    number = iter(range(10**6))

    def measure() -> float:
        at: list[float] = []
        out = folder / f"{recipe}{next(number)}"
        train(config, out, device="cpu", observe=lambda _: at.append(time.perf_counter()))
        # The first step warms up and the last one saves.
        return statistics.median(after - before for before, after in itertools.pairwise(at[:-1]))

    return measure


def _forward(side: int) -> Callable[[], float]:
    import torch

    model = _models()("vit_small_patch16", encoding="lookhere_90", num_classes=10).eval()
    images = torch.randn(8 if side < 512 else 1, 3, side, side)
    return _timed(lambda: model(images))


def _tiny(backward: bool) -> Callable[[], float]:
    import torch

    draws = torch.Generator().manual_seed(0)
    model = _models()("vit_micro_patch4", encoding="lookhere_90", num_classes=24).train(backward)
    packs = [
        [torch.randn(3, *(4 * side for side in torch.randint(4, 9, (2,), generator=draws).tolist())) for _ in range(32)]
        for _ in range(4)
    ]

    def run() -> None:
        for images in packs:
            logits = model(images)
            if backward:
                model.zero_grad(set_to_none=True)
                logits.square().sum().backward()

    return _timed(run, inference=not backward)


def _timed(work: Callable[[], Any], *, inference: bool = True) -> Callable[[], float]:
    import torch

    def measure() -> float:
        with torch.inference_mode() if inference else contextlib.nullcontext():
            started = time.perf_counter()
            work()
            return time.perf_counter() - started

    return measure


def _predict(folder: Path) -> Callable[[], float]:
    import numpy as np
    from PIL import Image

    from sightline import save_model
    from sightline.cli.app import main

    save_model(_models()("vit_tiny_patch16", encoding="lookhere_90", num_classes=10), folder / "model")
    draws, photos = np.random.default_rng(0), folder / "photos"
    photos.mkdir()
    for number in range(_PHOTOS):
        height, width = draws.integers(200, 500, 2).tolist()
        coarse = Image.fromarray(draws.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8))
        coarse.resize((width, height)).save(photos / f"{number}.jpg")
    words = ["predict", str(folder / "model"), str(photos), "--resolution", "max:256", "--json"]

    def measure() -> float:
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main(words)
        assert code == 0, code
        return time.perf_counter() - started

    return measure


def _side(threads: int) -> None:
    """A side: reads the kind to measure, a line each, and answers with its seconds."""
    import torch

    torch.set_num_threads(threads)
    works: dict[str, Callable[[], float]] = {}
    answers, sys.stdout = sys.stdout, sys.stderr
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        makers: dict[str, Callable[[], Callable[[], float]]] = {
            "uniform_step": lambda: _steps("vit_scenes", folder),
            "packed_step": lambda: _steps("navit_scenes", folder),
            "forward_224": lambda: _forward(224),
            "forward_1024": lambda: _forward(1024),
            "predict": lambda: _predict(folder),
            "tiny_packs": lambda: _tiny(False),
            "tiny_packs_step": lambda: _tiny(True),
        }
        for line in sys.stdin:
            kind = line.strip()
            if kind not in works:
                works[kind] = makers[kind]()
            print(json.dumps(works[kind]()), file=answers, flush=True)


def _begin(tree: Path, threads: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": str(threads)}
    words = [sys.executable, __file__, "--side", str(threads)]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )


def _ask(side: subprocess.Popen[str], kind: str) -> float:
    assert side.stdin is not None
    assert side.stdout is not None
    side.stdin.write(kind + "\n")
    side.stdin.flush()
    return float(side.stdout.readline() or "nan")


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """(low, median, high): the ranks between which the median lies with at least 95 % (binomial), else the extremes."""
    ordered, count = sorted(values), len(values)
    below = [sum(math.comb(count, k) for k in range(rank + 1)) / 2**count for rank in range(count)]
    rank = max((place + 1 for place, share in enumerate(below) if 2 * share <= 0.05), default=0)
    return ordered[rank], statistics.median(values), ordered[count - 1 - rank]


def main() -> None:
    if sys.argv[1:2] == ["--side"]:
        _side(int(sys.argv[2]))
        return
    from measure import RESULTS, Parser, append, destination, print_table, row, threads

    parser = Parser(description=__doc__)
    parser.add_argument("before", type=Path, help="a checkout of the other commit")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kinds", default=",".join(_KINDS))
    parser.add_argument("--threads", type=threads, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    kinds = [kind for kind in asked.kinds.split(",") if kind in _KINDS]
    out, here = destination(asked.out, RESULTS / "against.jsonl"), Path(__file__).parents[1]
    other = subprocess.run(
        ["git", "-C", str(asked.before), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    sides = {"here": _begin(here, asked.threads), "before": _begin(asked.before, asked.threads)}
    times: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in sides} for kind in kinds}
    for number in range(asked.rounds + 1):
        for kind in kinds:
            for name in sorted(sides, reverse=number % 2 == 1):
                taken = _ask(sides[name], kind)
                # The first round warms up.
                if number:
                    times[kind][name].append(taken)
            print(f"round {number} of {asked.rounds}: {kind}", file=sys.stderr)
    for side in sides.values():
        side.kill()
    rows = []
    for kind, of in times.items():
        low, middle, high = median_interval([a / b for a, b in zip(of["here"], of["before"], strict=True)])
        over = {"time_over_before": middle, "low": low, "high": high}
        rows.append(row("against", "here", "before", of, {}, kind=kind, before=other, **over))
    print_table(("kind", "time_over_before", "low", "high", "subject_ms", "baseline_ms", "rounds"), rows)
    append(rows, out)


if __name__ == "__main__":
    main()
