"""Packs of 32 tiny images (16 to 64 patches each) of vit_micro_patch4: this source against that of another commit.

    git worktree add ../before COMMIT
    python benchmarks/tiny_packs.py --against ../before [--encodings NAME ...] [--rounds 15] [--out OUT] [--threads 1]

Each side runs in a process of its own, which sleeps while the other works; in each round both do the same work on the
same packs, the one that begins in turn. `ratio` is the median of the rounds' own ratios, the other source's time over
this one's (above 1: this one is faster), and `interval` holds it with 95 % by the signs of the rounds. `work` is a
training step (forward, backward, AdamW) or a forward pass, in seconds of the processor and not of the clock;
`uniform` is a batch of 32 images of 36 patches.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, Parser, append, counted, destination, print_table, row, threads, write
from torch import Tensor

from sightline import create_model

_ENCODINGS = ("lookhere_90", "alibi_2d", "rope_axial", "rope_mixed", "rpe_learned", "learned_1d", "none")
_IMAGES, _PACKS, _PATCH = 32, 4, 4


class Side:
    """A source tree in a process of its own, which does one work at a time and says how many seconds it took."""

    def __init__(self, tree: Path, number: int) -> None:
        command = [sys.executable, __file__, "--against", str(tree), "--side", "--threads", str(number)]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": str(number)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        found = self.say("where")
        if Path(found).resolve() != (tree / "src" / "sightline").resolve():
            raise RuntimeError(f"{tree}: its process imports {found}")

    def say(self, words: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()


def packs() -> list[list[Tensor]]:
    """Images of 4 to 8 patches a side, the same in every process."""
    draw, generator = random.Random(0), torch.Generator().manual_seed(0)
    sides = [[[_PATCH * draw.randint(4, 8) for _ in "yx"] for _ in range(_IMAGES)] for _ in range(_PACKS)]
    return [[torch.randn(3, *size, generator=generator) for size in pack] for pack in sides]


def serve() -> None:
    """Answer each line of the input, "encoding work inputs", with the processor seconds that all its inputs took."""
    import sightline

    given: dict[str, list[Any]] = {"packs": packs(), "uniform": [torch.randn(_IMAGES, 3, 24, 24)] * _PACKS}
    models: dict[str, tuple[torch.nn.Module, torch.optim.Optimizer]] = {}
    for line in sys.stdin:
        if line.strip() == "where":
            print(Path(str(sightline.__file__)).parent, flush=True)
            continue
        encoding, work, kind = line.split()
        if encoding not in models:
            torch.manual_seed(0)
            model = create_model("vit_micro_patch4", encoding=encoding, num_classes=10)
            models[encoding] = model, torch.optim.AdamW(model.parameters(), lr=1e-4)
        model, optimizer = models[encoding]
        model.train(work == "step")
        started = time.process_time()
        for images in given[kind]:
            if work == "step":
                model(images).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                with torch.inference_mode():
                    model(images)
        print(time.process_time() - started, flush=True)


def interval(ratios: list[float]) -> list[float]:
    """Between which two of the ratios their median lies with 95 %, by the binomial distribution of signs."""
    count, below, outside = len(ratios), 0, 0.0
    while below < count // 2 and outside + math.comb(count, below) / 2**count <= 0.025:
        outside += math.comb(count, below) / 2**count
        below += 1
    last = max(below - 1, 0)
    ordered = sorted(ratios)
    return [round(ordered[last], 3), round(ordered[count - 1 - last], 3)]


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--against", type=Path, required=True, help="the root of the other source tree")
    parser.add_argument("--encodings", nargs="+", default=_ENCODINGS, help="by their names")
    parser.add_argument("--inputs", nargs="+", choices=("packs", "uniform"), default=("packs", "uniform"))
    parser.add_argument("--rounds", type=threads, default=15, help="timed ones; at least 6 give an interval")
    parser.add_argument("--out", type=Path, help="replace this file; else added to benchmarks/results/tiny_packs.jsonl")
    parser.add_argument("--threads", type=threads, default=1, help="threads of torch; published rows have 1")
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.side:
        serve()
        return
    path = destination(chosen.out, RESULTS / "tiny_packs.jsonl")
    trees = {"here": Path(__file__).parent.parent, "there": chosen.against.resolve()}
    sides = {name: Side(tree, chosen.threads) for name, tree in trees.items()}
    commit = subprocess.run(
        ["git", "-C", str(trees["there"]), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    cases = [(name, work, kind) for kind in chosen.inputs for name in chosen.encodings for work in ("step", "forward")]
    rows = []
    for case, said in counted(cases):
        print(f"{said} {' '.join(case)}", flush=True)
        times: dict[str, list[float]] = {"here": [], "there": []}
        for number in range(chosen.rounds + 1):
            for name in sorted(sides, reverse=bool(number % 2)):
                seconds = float(sides[name].say(" ".join(case)))
                if number:
                    times[name].append(seconds / _PACKS)
        ratios = [slow / fast for slow, fast in zip(times["there"], times["here"], strict=True)]
        about = {"encoding": case[0], "work": case[1], "inputs": case[2], "images": _IMAGES, "against": commit}
        rows.append(row("tiny_packs", "here", "there", times, {}, **about) | {"interval": interval(ratios)})
        print_table(("encoding", "work", "inputs", "ratio", "interval", "subject_ms"), rows[-1:])
    (append if chosen.out is None else write)(rows, path)
    print(f"rows: {path}")


if __name__ == "__main__":
    main()
