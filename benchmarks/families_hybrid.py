"""Hybrids beside timm's own, with the same weights: a forward and a training step.

    python benchmarks/families_hybrid.py [--quick] [--out OUT] [--threads 1]

The subject is what `import_weights` makes of timm's model, so that both compute the same. A fixed batch of images of
224 px, the same for both and in every round; a training step is forward, backward and a step of SGD with momentum.
`ratio` is timm's time over ours: at least 0.95 says that ours takes at most 1.05 times as long.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from measure import Parser, Work, clock, counted, interleave, print_table, row
from timm_vit import timm_vit
from torch import nn

from sightline.convert import import_weights

_SIDE = 224
_MODELS = ("vit_tiny_r_s16_p8_224", "vit_small_r26_s32_224")
# Images of a batch.
_PASSES = {"forward": 8, "training": 4}
_COLUMNS = ("model", "work", "batch", "ratio", "interval", "subject_ms", "baseline_ms", "rounds")


def pair(name: str) -> dict[str, nn.Module]:
    """timm's model with new weights, and ours with the same ones.

    Raises:
        SystemExit: timm does not import.
    """
    torch.manual_seed(0)
    theirs = timm_vit(name, _SIDE)
    if theirs is None:
        raise SystemExit("families_hybrid: needs timm (pip install 'sightline[timm]')")
    return {"sightline": import_weights("timm", theirs.state_dict(), {"model": name}), "timm": theirs}


def work_of(model: nn.Module, kind: str, batch: int) -> Work:
    """A pass over a fixed batch."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, _SIDE, _SIDE, generator=generator)
    labels = torch.randint(1000, (batch,), generator=generator)
    if kind == "forward":
        model.eval()

        def forward() -> object:
            with torch.inference_mode():
                return model(images)

        return forward
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> object:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        return optimizer.step()

    return step


def measured(name: str, kind: str, batch: int, rounds: int) -> dict[str, Any]:
    models = pair(name)
    works = {way: work_of(model, kind, batch) for way, model in models.items()}
    times = interleave(works, rounds, by=clock())
    return row("families_hybrid", "sightline", "timm", times, {}, model=name, resolution=_SIDE, batch=batch, work=kind)


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("families_hybrid", "three rounds of batches of one image: only to see that it runs")
    parser.add_argument("--rounds", type=int, default=15, help="timed ones; at least 6 give an interval")
    chosen = parser.begin()
    rounds = 3 if chosen.quick else chosen.rounds
    rows = []
    for (name, kind), said in counted([(name, kind) for name in _MODELS for kind in _PASSES]):
        print(f"{said} {name}, {kind}", flush=True)
        rows.append(measured(name, kind, 1 if chosen.quick else _PASSES[kind], rounds))
    print_table(_COLUMNS, rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
