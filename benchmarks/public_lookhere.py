"""The public LookHere way of making its bias, written anew as a baseline: every pair of patches, in float64, at once.

    python benchmarks/public_lookhere.py [--sides 14 24 32] [--out OUT]

Measures how long the build for a ViT-B takes (12 layers, 12 heads, LookHere-90) and how much memory, each in a process
of its own. What the machine's memory does not hold is set beside it by the formula and marked "computed".
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from measure import Parser, in_fresh_process, print_table, write

from sightline.distributed import machine
from sightline.encodings.pattern.lookhere import LookHere

_DEPTH, _HEADS = 12, 12


def stored_bias(encoding: LookHere, grid: tuple[int, int], layers: range) -> torch.Tensor:
    """The biases of some layers as the public code stores them: float32 [layers, heads, N, N] with one CLS token.

    As there: a Python loop over queries makes the masks of cones, distances are repeated for each head in float64, all
    layers are multiplied at once in float64, and the result is rounded to bfloat16, made float32 and joined with zeros
    in two copies.
    """
    rows, cols = grid
    y, x = (axis.ravel() for axis in np.mgrid[:rows, :cols])
    distance = np.sqrt((y[:, None] - y) ** 2.0 + (x[:, None] - x) ** 2.0)
    heads = encoding.heads_of_layer[layers[0]]
    hidden = np.zeros((len(heads), len(y), len(y)), dtype=bool)
    for query in range(len(y)):
        dy, dx = y - y[query], x - x[query]
        for index, (head, _) in enumerate(heads):
            for a, b in head.view.planes:
                hidden[index, query] |= a * dy + b * dx < 0
    penalty = np.tile(distance, (len(heads), 1, 1))
    penalty[hidden] = np.inf
    penalty = np.array([slope for _, slope in heads])[:, None, None] * penalty
    slopes = np.array([encoding.layer_slope(layer) for layer in layers])
    every = np.nan_to_num(slopes[:, None, None, None] * penalty, posinf=float(torch.finfo(torch.bfloat16).max))
    bias = torch.tensor(every, dtype=torch.bfloat16) * -1.0
    bias = torch.cat((torch.zeros(*bias.shape[:3], 1), bias), dim=-1)
    return torch.cat((torch.zeros(*bias.shape[:2], 1, bias.shape[-1]), bias), dim=-2)


def lookhere_90() -> LookHere:
    """LookHere-90 of a ViT-B."""
    from sightline.encodings import create_encoding

    encoding = create_encoding("lookhere_90", depth=_DEPTH, heads=_HEADS, dim=64 * _HEADS)
    assert isinstance(encoding, LookHere)
    return encoding


def _measure(side: int) -> dict[str, object]:
    before = machine.peak_memory()
    started = time.perf_counter()
    bias = stored_bias(lookhere_90(), (side, side), range(_DEPTH))
    return {
        "seconds": round(time.perf_counter() - started, 2),
        "peak_mib": round((machine.peak_memory() - before) / 2**20),
        "stored_mib": round(bias.nbytes / 2**20),
    }


def _computed(side: int) -> dict[str, object]:
    """The two largest arrays by the formula: all layers in float64, and as they are stored. Copies come on top."""
    patches, tokens, every = side**2, side**2 + 1, _DEPTH * _HEADS
    return {
        "seconds": None,
        "peak_mib": round(every * (8 * patches**2 + 4 * tokens**2) / 2**20),
        "stored_mib": round(every * 4 * tokens**2 / 2**20),
    }


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument(
        "--sides", type=int, nargs="+", default=[14, 24, 32, 48, 64], help="of square grids, in patches"
    )
    parser.add_argument("--out", type=Path, help="replace this file with the rows")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(_measure(chosen.measure)))
        return
    rows = []
    for side in chosen.sides:
        formula = _computed(side)
        free = machine.available_memory("cpu")
        # The copies were measured to double it.
        fits = free is None or 2 * formula["peak_mib"] * 2**20 < free  # type: ignore[operator]
        figures = in_fresh_process(__file__, ["--measure", str(side)]) if fits else formula
        rows.append(
            {
                "benchmark": "public_lookhere",
                "grid": f"{side}x{side}",
                "how": "measured" if fits else "computed",
                **figures,
                "computed_peak_mib": formula["peak_mib"],
                "hardware": machine.hardware_name(),
                "torch": torch.__version__,
                "commit": machine.git_commit(),
            }
        )
    print_table(("grid", "how", "seconds", "peak_mib", "stored_mib", "computed_peak_mib"), rows)
    if chosen.out:
        write(rows, chosen.out)


if __name__ == "__main__":
    main()
