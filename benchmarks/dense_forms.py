"""SDPA against explicit matmul and softmax, side by side: where `attention/backends/dense.py` takes its table from.

    python benchmarks/dense_forms.py [--json OUT]

One attention layer with a bias, 12 heads of 16 and of 64, interleaved rounds, medians; a row a comparison. `ratio` is
SDPA's time over the explicit form's: above 1 the explicit form is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sightline import runtime
from sightline.attention.backends.dense import explicit_attention, sdpa

_CASES = ((65, 32), (145, 16), (257, 16), (577, 4), (1025, 2))
_ROUNDS = 7


def _time(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _pass(form: Callable[..., torch.Tensor], tensors: tuple[torch.Tensor, ...], backward: bool) -> Callable[[], None]:
    def work() -> None:
        with torch.set_grad_enabled(backward):
            out = form(*tensors)
            if backward:
                out.sum().backward()

    return work


def compare(tokens: int, batch: int, head_dim: int, dtype: torch.dtype, backward: bool) -> dict[str, object]:
    """One row."""
    q, k, v = (torch.randn(batch, 12, tokens, head_dim, dtype=dtype, requires_grad=backward) for _ in range(3))
    bias = torch.randn(1, 12, tokens, tokens).to(dtype)
    works = {
        name: _pass(form, (q, k, v, bias), backward)
        for name, form in (("explicit", explicit_attention), ("sdpa", sdpa))
    }
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(_ROUNDS):
        for name, work in works.items():
            times[name].append(_time(work))
    ratios = [slow / fast for slow, fast in zip(times["sdpa"], times["explicit"], strict=True)]
    return {
        "benchmark": "dense_forms",
        "subject": "explicit",
        "baseline": "sdpa",
        "pass": "forward+backward" if backward else "forward",
        "tokens": tokens,
        "batch": batch,
        "head_dim": head_dim,
        "dtype": str(dtype).removeprefix("torch."),
        "ratio": round(statistics.median(ratios), 3),
        "spread": round(max(ratios) - min(ratios), 3),
        "threads": torch.get_num_threads(),
        "hardware": runtime.hardware(),
        "torch": torch.__version__,
        "commit": runtime.commit(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="replace this file with the rows")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print(f"{'pass':<17}{'dtype':<10}{'head_dim':>9}{'tokens':>8}{'sdpa / explicit':>17}")
    for backward in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            for head_dim in (16, 64):
                for tokens, batch in _CASES:
                    row = compare(tokens, batch, head_dim, dtype, backward)
                    rows.append(row)
                    print(f"{row['pass']:<17}{row['dtype']:<10}{head_dim:>9}{tokens:>8}{row['ratio']:>17}", flush=True)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
