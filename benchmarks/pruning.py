"""What pruning costs and gains: blocks of pairs whose smallest penalty exceeds a bound are left out.

    python benchmarks/pruning.py [--run FOLDER] [--resolution 148] [--images 200] [--out OUT]

At random weights: one attention layer of a ViT-B with LookHere-90 at 4097 tokens, pruned against unpruned tiles side by
side, with the relative error of the output, averaged over the first, a middle and the last layer (their slopes differ).
With `--run`, also at trained weights: a run of `sightline train` or `sightline demo`, at a resolution beyond its own:
the relative error of the logits, how often the first class changes, and the accuracy of both.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, Parser, append, destination, interleave, print_table, row, write
from torch import Tensor

from sightline.attention import Pattern, attend, use_backend
from sightline.attention.pattern import BFLOAT16_MAX
from sightline.attention.visible_blocks import fraction, visible_blocks
from sightline.data.open import open_source
from sightline.encodings import create_encoding
from sightline.encodings.base import PatternEncoding
from sightline.evaluation.predict import predict_split
from sightline.hub.load import load_model
from sightline.tasks.base import task_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

_BOUNDS = (16.0, 12.0, 8.0)
_GRID = Grid(64, 64)


def computed(pattern: Pattern, grid: Grid) -> float:
    """The share of all pairs that tiles compute."""
    table = pattern.tables(grid, torch.device("cpu"))[0]
    bound = BFLOAT16_MAX if pattern.prune_below is None else pattern.prune_below
    return fraction(visible_blocks((table > -BFLOAT16_MAX) & (table >= -bound), grid), grid)


def at_random_weights(rounds: int) -> list[dict[str, Any]]:
    """One layer at 4097 tokens."""
    encoding = create_encoding("lookhere_90", depth=12, heads=12, dim=768)
    assert isinstance(encoding, PatternEncoding)
    layout = TokenLayout.uniform(_GRID, 1)
    rows = []
    for bound in _BOUNDS:
        ratios, errors, shares, cases = [], [], [], []
        for layer in (0, 6, 11):
            torch.manual_seed(layer)
            q, k, v = torch.randn(3, 1, 12, layout.slots, 64).unbind(0)
            whole = encoding.layer_pattern(layer)
            pruned = dataclasses.replace(whole, prune_below=bound)
            with torch.no_grad(), use_backend("tiles"):
                exact, near = (attend(q, k, v, one, layout) for one in (whole, pruned))
                works = {
                    "unpruned": lambda: attend(q, k, v, whole, layout),  # noqa: B023
                    "pruned": lambda: attend(q, k, v, pruned, layout),  # noqa: B023
                }
                times = interleave(works, rounds)
            errors.append(float((near - exact).norm() / exact.norm()))
            shares.append((computed(whole, _GRID), computed(pruned, _GRID)))
            cases.append(row("pruning", "pruned", "unpruned", times, {}, **{"pass": "forward"}))
            ratios.append(cases[-1]["ratio"])
        first = cases[0]
        rows.append(
            {
                **first,
                "tokens": layout.slots,
                "dtype": "float32",
                "encoding": "lookhere_90",
                "weights": "random",
                "prune_below": bound,
                "ratio": round(statistics.mean(ratios), 3),
                "computed_unpruned": round(statistics.mean(a for a, _ in shares), 3),
                "computed_pruned": round(statistics.mean(b for _, b in shares), 3),
                "relative_error": float(f"{math.sqrt(statistics.mean(e * e for e in errors)):.3g}"),
            }
        )
    return rows


def at_trained_weights(run: Path, resolution: int, count: int) -> list[dict[str, Any]]:
    """The model of a run beyond its training resolution."""
    model = load_model(run / "checkpoint").eval()
    source = open_source("scenes")
    task = task_of(model).bind(source, "scenes")

    def logits(bound: float | None) -> tuple[Tensor, Tensor]:
        encoding: Any = model.encoding
        encoding.config = dataclasses.replace(encoding.config, prune_below=bound)
        with use_backend("tiles"):
            given = list(predict_split(model, task, source, "test", range(count), resolution))
        return torch.cat([one.outputs for one in given]), torch.cat([one.batch.targets["labels"] for one in given])

    exact, labels = logits(None)
    right = exact.argmax(1) == labels
    rows = []
    for bound in _BOUNDS:
        near, _ = logits(bound)
        error = float(((near - exact) ** 2).sum() / (exact**2).sum())
        rows.append(
            {
                "benchmark": "pruning",
                "weights": "trained",
                "encoding": model.encoding.name,
                "resolution": resolution,
                "images": count,
                "prune_below": bound,
                "relative_error": float(f"{math.sqrt(error):.3g}"),
                "changed_top1": round(float((near.argmax(1) != exact.argmax(1)).double().mean()), 4),
                "top1_unpruned": round(float(right.double().mean()), 4),
                "top1_pruned": round(float((near.argmax(1) == labels).double().mean()), 4),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--run", type=Path, help="the folder of a run on scenes with a LookHere encoding")
    parser.add_argument("--resolution", type=int, default=148, help="side in pixels for --run")
    parser.add_argument("--images", type=int, default=200, help="test images for --run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="replace this file; else rows are added to benchmarks/results")
    chosen = parser.parse_args(arguments)
    path = destination(chosen.out, RESULTS / "pruning.jsonl")
    torch.set_num_threads(1)
    random = at_random_weights(chosen.rounds)
    print_table(("prune_below", "ratio", "spread", "computed_unpruned", "computed_pruned", "relative_error"), random)
    trained = at_trained_weights(chosen.run, chosen.resolution, chosen.images) if chosen.run else []
    if trained:
        print_table(("prune_below", "relative_error", "changed_top1", "top1_unpruned", "top1_pruned"), trained)
    rows = random + trained
    (write if chosen.out else append)(rows, path)


if __name__ == "__main__":
    main()
