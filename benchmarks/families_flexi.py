"""FlexiViT beside timm's ViT of the same patch size: the same widths, one forward pass, and one with its way back.

    python -m benchmarks.families_flexi --sizes 48,30,16,8 --output benchmarks/results/families_flexi.jsonl

Ours resizes its kernel of 32 px to the patches: once without gradients, at each step with them. timm's has a kernel of
those patches. One core, fixed batches; medians of paired ratios with the middle nine tenths. `ratio` is ours over
timm's, and 1.05 is what it is to stay below.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.timm_vit import timm_vit
from torch import Tensor, nn

from sightline import runtime
from sightline.models import create_model

IMAGE = 240
SMALL = {"dim": 384, "depth": 12, "heads": 6}


def ours(patch: int) -> nn.Module:
    options = {**SMALL, "image_size": IMAGE, "patch_size": patch, "encoding": "learned_1d"}
    return create_model("vit_small_patch16", **options, embedder="flexible", embedder_options={"base": 32})


def forward(model: nn.Module, images: Tensor) -> None:
    with torch.inference_mode():
        model(images)


def training(model: nn.Module, images: Tensor) -> None:
    model.zero_grad(set_to_none=True)
    model(images).square().mean().backward()


def seconds(work: Callable[[nn.Module, Tensor], None], model: nn.Module, images: Tensor) -> float:
    started = time.perf_counter()
    work(model, images)
    return time.perf_counter() - started


def measured(work: Callable[[nn.Module, Tensor], None], patch: int, batch: int, repeats: int) -> dict[str, Any]:
    """Paired times of both, each first in every second pair."""
    theirs = timm_vit("vit_small_patch16_224", IMAGE, patch_size=patch)
    if theirs is None:
        raise SystemExit("timm does not import here")
    models = [ours(patch).eval(), theirs.eval()]
    images = torch.randn(batch, 3, IMAGE, IMAGE, generator=torch.Generator().manual_seed(0))
    for model in models:
        work(model, images)
    pairs = []
    for number in range(repeats):
        took = [0.0, 0.0]
        for place in (0, 1) if number % 2 else (1, 0):
            took[place] = seconds(work, models[place], images)
        pairs.append(took)
    ratios = sorted(one / other for one, other in pairs)
    cut = len(ratios) // 20
    return {
        "what": f"flexivit {work.__name__}", "patch_size": patch, "batch": batch, "repeats": repeats,
        "ours_seconds": statistics.median(one for one, _ in pairs),
        "timm_seconds": statistics.median(other for _, other in pairs),
        "ratio": statistics.median(ratios), "low": ratios[cut], "high": ratios[-1 - cut],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="48,30,16", help="patch sizes that divide 240")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    where = {"hardware": runtime.hardware(torch.device("cpu")), "commit": runtime.commit(), "torch": torch.__version__}
    rows = []
    for patch in map(int, asked.sizes.split(",")):
        for work in (forward, training):
            rows.append({**measured(work, patch, asked.batch, asked.repeats), **where})
            print(json.dumps(rows[-1]), flush=True)
    if asked.output is not None:
        asked.output.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
