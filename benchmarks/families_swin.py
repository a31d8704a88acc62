"""Swin-T beside timm's: a forward pass and a training step at 224 and 448 px, in turn.

    python benchmarks/families_swin.py [--rounds 15] [--sizes 224 448] [--quick] [--out OUT]

Both have the same weights, made once and put into the other (`convert`), windows of 7 at both sizes, float32 and fixed
batches. In every round each is run once, one after the other; `ratio` is the median of ours over theirs, pair by pair,
with its 95 % interval. With one thread the processor's seconds count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from measure import Parser, clock, counted, interleave, print_table, threads
from torch import Tensor, nn

from sightline import runtime
from sightline.convert import import_weights
from sightline.runtime import import_timm

_NAME = "swin_tiny_patch4_window7_224"


def models(size: int) -> dict[str, nn.Module]:
    """Ours and timm's, of one set of weights."""
    torch.manual_seed(0)
    given = {"img_size": size, "window_size": 7}
    theirs = import_timm().create_model(_NAME, **given)
    return {"ours": import_weights("timm", theirs.state_dict(), {"model": _NAME, **given}), "timm": theirs}


def forward(model: nn.Module, images: Tensor) -> Callable[[], object]:
    """A pass without gradients."""

    def work() -> Tensor:
        with torch.inference_mode():
            return model(images)

    return work


def step(model: nn.Module, images: Tensor) -> Callable[[], object]:
    """Forward, backward and the optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    labels = torch.arange(len(images)) % 10

    def work() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return work


def interval(ratios: list[float]) -> tuple[float, float]:
    """Of the median, by its ranks: 95 % or more, and the whole range of few rounds."""
    ordered, count = sorted(ratios), len(ratios)
    low = max(0, int((count - 1.96 * count**0.5) / 2))
    return ordered[low], ordered[count - 1 - low]


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=threads, default=15)
    parser.add_argument("--sizes", type=threads, nargs="+", default=[224, 448])
    parser.usual("families", "three rounds at 224 px")
    asked = parser.begin()
    rounds, sizes = (3, [224]) if asked.quick else (asked.rounds, asked.sizes)
    cases = [(size, kind) for size in sizes for kind in ("forward", "training step")]
    rows: list[dict[str, Any]] = []
    for (size, kind), said in counted(cases):
        print(f"{said} {kind} at {size} px", flush=True)
        batch = max(1, 4 * 224**2 // size**2)
        images, made = torch.randn(batch, 3, size, size), models(size)
        for model in made.values():
            # Neither drops paths: ours is made without, timm's has a rate.
            model.eval()
        works = {name: (forward if kind == "forward" else step)(model, images) for name, model in made.items()}
        times = interleave(works, rounds, by=clock())
        ratios = [ours / theirs for ours, theirs in zip(times["ours"], times["timm"], strict=True)]
        rows.append(
            {"benchmark": "families", "model": _NAME, "pass": kind, "resolution": size, "batch": batch,
             **{f"{name}_seconds": round(statistics.median(seconds), 4) for name, seconds in times.items()},
             "ratio": round(statistics.median(ratios), 4), "interval": [round(one, 4) for one in interval(ratios)],
             "rounds": rounds, "threads": asked.threads, "hardware": runtime.hardware(), "commit": runtime.commit()}
        )  # fmt: skip
    parser.save(rows)
    print_table(("pass", "resolution", "batch", "ours_seconds", "timm_seconds", "ratio", "interval"), rows)


if __name__ == "__main__":
    main()
