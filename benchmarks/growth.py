"""What a process keeps of ever new sizes: its resident memory over a thousand images, no two of one size.

    python benchmarks/growth.py [--encodings lookhere_90 rope_axial] [--sizes 1000] [--out OUT]

Each encoding in a process of its own: a small model of one layer in float32, evaluation mode, one image at a time of
each of so many grids of up to 40 x 60 patches, in an order that is the same for all. One pass of the smallest and one
of the largest grid come first, so that what a pass takes for a moment is there before it is counted: `growth_mib` is
what the rest adds, `highest_mib` the same at the highest. About half a minute an encoding on one idle core.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch
from measure import (
    RESULTS,
    Parser,
    append,
    counted,
    destination,
    in_fresh_process,
    print_table,
    resident_bytes,
    threads,
    write,
)

from sightline.distributed import machine
from sightline.encodings import list_encodings
from sightline.models import create_model

_MODEL, _PATCH, _DEPTH = "vit_micro_patch4", 4, 1
_LARGEST = (40, 60)
_MOST_MIB = 100


def grids(count: int) -> list[tuple[int, int]]:
    """So many different (rows, cols), at random but always the same."""
    rows, cols = _LARGEST
    every = [(row, col) for row in range(1, rows + 1) for col in range(1, cols + 1)]
    return random.Random(0).sample(every, count)


def measure(encoding: str, count: int) -> dict[str, Any]:
    """The row of one encoding, without what the machine is."""
    torch.manual_seed(0)
    model = create_model(_MODEL, depth=_DEPTH, encoding=encoding, num_classes=10).eval()

    def look(rows: int, cols: int) -> None:
        # As a user calls it first: with what a backward pass would need.
        model(torch.randn(1, 3, rows * _PATCH, cols * _PATCH))

    built = resident_bytes()
    for grid in ((1, 1), _LARGEST):
        look(*grid)
    first = highest = resident_bytes()
    started = time.perf_counter()
    for grid in grids(count):
        look(*grid)
        highest = max(highest, resident_bytes())
    seconds, last = time.perf_counter() - started, resident_bytes()
    return {
        "benchmark": "growth",
        "encoding": encoding,
        "model": _MODEL,
        "depth": _DEPTH,
        "dtype": "float32",
        "sizes": count,
        "largest": list(_LARGEST),
        "built_mib": round(built / 2**20, 1),
        "first_mib": round(first / 2**20, 1),
        "growth_mib": round((last - first) / 2**20, 1),
        "highest_mib": round((highest - first) / 2**20, 1),
        "seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
        "hardware": machine.hardware_name(),
        "torch": torch.__version__,
        "commit": machine.git_commit(),
    }


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--encodings", nargs="+", choices=list_encodings(), default=list_encodings(), metavar="NAME")
    parser.add_argument("--sizes", type=int, choices=range(1, 2401), default=1000, metavar="1..2400")
    parser.add_argument(
        "--out", type=Path, help="replace this file; else rows are added to benchmarks/results/growth.jsonl"
    )
    parser.add_argument("--threads", type=threads, default=1, help="threads of torch; published rows have 1")
    parser.add_argument("--measure", choices=list_encodings(), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.measure:
        print(json.dumps(measure(chosen.measure, chosen.sizes)))
        return
    path = destination(chosen.out, RESULTS / "growth.jsonl")
    rows: list[dict[str, Any]] = []
    for encoding, said in counted(chosen.encodings):
        print(f"{said} {encoding}", flush=True)
        options = ["--measure", encoding, "--sizes", str(chosen.sizes), "--threads", str(chosen.threads)]
        rows.append(in_fresh_process(__file__, options))
        print_table(("encoding", "first_mib", "growth_mib", "highest_mib", "seconds"), rows[-1:])
    (write if chosen.out else append)(rows, path)
    beyond = [row["encoding"] for row in rows if row["growth_mib"] >= _MOST_MIB]
    print(f"beyond {_MOST_MIB} MiB: {', '.join(beyond) or 'none'}")


if __name__ == "__main__":
    main()
