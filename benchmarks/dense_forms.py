"""The forms of attention in bfloat16 on a CPU, side by side: where `attention/backends/dense.py` takes its table from.

    python benchmarks/dense_forms.py [--quick] [--out OUT]

One attention layer with a bias, 3 to 12 heads of 16 and of 64, on batches, on single images and on a pack of tiny ones;
a row a form and case, its baseline SDPA in bfloat16. `ratio` is the baseline's time over the form's, the median of
interleaved rounds: above 1 the form is faster. `errors` are root mean squares of the differences to float64, of the
output and of the gradients of q, k and v, over those of the baseline: above 1 the form is less exact. Times are those
of the one thread that computes, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, Parser, append, counted, destination, print_table, write
from torch import Tensor

from sightline import runtime
from sightline.attention import attend, use_backend
from sightline.attention.backends import dense
from sightline.encodings import create_encoding
from sightline.layout import TokenLayout

_FORMS = {"sdpa": dense.sdpa, "explicit": dense.explicit_attention, "sdpa_in_float32": dense.sdpa_in_float32}
_HEADS = ((12, 16), (3, 64), (12, 64))
_SIDES = (4, 8, 10, 12, 16, 24, 32)
# Scores of a batch, for calls of some ten milliseconds.
_SCORES = 10**6


def _layouts(heads: int) -> list[tuple[str, TokenLayout]]:
    """What is attended over: batches and single images of each size, and 32 images of 16 to 64 patches in a pack."""
    generator = torch.Generator().manual_seed(0)
    sides = torch.randint(4, 9, (32, 2), generator=generator).tolist()
    found = [("pack", TokenLayout.packed([(rows, cols) for rows, cols in sides]))]
    for side in _SIDES:
        tokens = side * side + 1
        images = min(max(2, _SCORES // (heads * tokens**2)), 32)
        found += [("image", TokenLayout.uniform((side, side), 1)), ("batch", TokenLayout.uniform((side, side), images))]
    return found


def _pass(
    inputs: Tensor, weights: Tensor, layout: TokenLayout, form: str, backward: bool
) -> Callable[[], list[Tensor]]:
    """A call of a layer as a model makes it: q, k and v cut from one projection [rows, slots, 3, heads, head_dim]."""
    heads, head_dim = inputs.shape[3:]
    pattern = create_encoding("lookhere_90", depth=12, heads=heads, dim=heads * head_dim).layer_pattern(5)
    leaf = inputs.detach().requires_grad_(backward)

    def work() -> list[Tensor]:
        dense._form = lambda *_: _FORMS[form]
        with torch.set_grad_enabled(backward), use_backend("dense"):
            out = attend(*leaf.permute(2, 0, 3, 1, 4).unbind(0), pattern, layout).transpose(1, 2)
            return [out, *torch.autograd.grad(out, leaf, weights)[0].unbind(2)] if backward else [out]

    return work


def _errors(found: Sequence[Tensor], exact: Sequence[Tensor]) -> list[float]:
    return [
        float((one.detach().double() - other.detach()).square().mean().sqrt())
        for one, other in zip(found, exact, strict=True)
    ]


def compare(
    kind: str, layout: TokenLayout, heads: int, head_dim: int, backward: bool, rounds: int
) -> list[dict[str, Any]]:
    """The rows of one case."""
    torch.manual_seed(0)
    inputs = torch.randn(layout.rows, layout.slots, 3, heads, head_dim).bfloat16()
    weights = torch.randn(layout.rows, layout.slots, heads, head_dim).bfloat16()
    works = {form: _pass(inputs, weights, layout, form, backward) for form in _FORMS}
    exact = _pass(inputs.double(), weights.double(), layout, "explicit", backward)()
    errors = {form: _errors(work(), exact) for form, work in works.items()}
    calls = max(1, round(_SCORES / 4 / (layout.rows * heads * sum(length**2 for length in layout.lengths))))
    times: dict[str, list[float]] = {form: [] for form in works}
    for _ in range(rounds):
        for form, work in works.items():
            started = time.thread_time()
            for _ in range(calls):
                work()
            times[form].append((time.thread_time() - started) / calls)
    rows = []
    for form in _FORMS:
        if form == "sdpa":
            continue
        ratios = [slow / fast for slow, fast in zip(times["sdpa"], times[form], strict=True)]
        quartiles = statistics.quantiles(ratios, n=4, method="inclusive")
        rows.append(
            {
                "benchmark": "dense_forms",
                "subject": form,
                "baseline": "sdpa",
                "pass": "forward+backward" if backward else "forward",
                "kind": kind,
                "tokens": layout.slots // layout.images if kind == "pack" else layout.slots,
                "batch": layout.images,
                "heads": heads,
                "head_dim": head_dim,
                "dtype": "bfloat16",
                "ratio": round(statistics.median(ratios), 3),
                "spread": round(quartiles[2] - quartiles[0], 3),
                "subject_ms": round(statistics.median(times[form]) * 1e3, 3),
                "errors": [round(one / other, 2) for one, other in zip(errors[form], errors["sdpa"], strict=True)],
                "rounds": rounds,
                "clock": "thread",
                "threads": torch.get_num_threads(),
                "hardware": runtime.hardware(),
                "torch": torch.__version__,
                "commit": runtime.commit(),
            }
        )
    return rows


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds instead of seven")
    parser.add_argument(
        "--out",
        type=Path,
        help="replace this file with the rows; else they are added to benchmarks/results/dense_forms.jsonl",
    )
    chosen: argparse.Namespace = parser.parse_args()
    path = destination(chosen.out, RESULTS / "dense_forms.jsonl")
    torch.set_num_threads(1)
    cases = [
        (kind, layout, heads, head_dim, backward)
        for heads, head_dim in _HEADS
        for kind, layout in _layouts(heads)
        for backward in (False, True)
    ]
    rows: list[dict[str, Any]] = []
    for case, said in counted(cases):
        fresh = compare(*case, rounds=3 if chosen.quick else 7)
        print(said, flush=True)
        print_table(("pass", "kind", "tokens", "heads", "head_dim", "subject", "ratio", "subject_ms", "errors"), fresh)
        rows += fresh
    (write if chosen.out else append)(rows, path)


if __name__ == "__main__":
    main()
