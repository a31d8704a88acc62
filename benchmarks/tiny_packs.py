"""Packs of 32 tiny images (16 to 64 patches each) of vit_micro_patch4: against a batch, or another commit's source.

    python benchmarks/tiny_packs.py --against uniform [--encodings NAME ...] [--rounds 15] [--out OUT] [--threads 1]
    git worktree add ../before COMMIT
    python benchmarks/tiny_packs.py --against ../before [--encodings NAME ...] [--rounds 15] [--out OUT] [--threads 1]

Against `uniform`, a training step (forward, backward, AdamW as our loop has it) on packs and on a batch of 32 images of
65 tokens are timed in turn, in one process: `ratio` is the time a token of the packs over that of the batch, expected
to be at most `wanted` with lookhere_90, in float32 and in bfloat16; the milliseconds are of a thousand tokens. Against
another source tree:

Each side runs in a process of its own, which sleeps while the other works; in each round both do the same work on the
same packs, the one that begins in turn. `ratio` is the median of the rounds' own ratios, the other source's time over
this one's (above 1: this one is faster), and `interval` holds it with 95 % by the signs of the rounds. `work` is a
training step (forward, backward, AdamW) or a forward pass, in seconds of the processor and not of the clock;
`uniform` is a batch of 32 images of 36 patches.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from typing import Any

import torch
from measure import RESULTS, Against, append, beside, clock, counted, destination, print_table, questions, row, write
from torch import Tensor

from sightline import create_model

_ENCODINGS = ("lookhere_90", "alibi_2d", "rope_axial", "rope_mixed", "rpe_learned", "learned_1d", "none")
_IMAGES, _PACKS, _PATCH = 32, 4, 4
# The most that a token of a pack may take, in those of a batch, with lookhere_90.
_WANTED = 1.3


def packs() -> list[list[Tensor]]:
    """Images of 4 to 8 patches a side, the same in every process."""
    draw, generator = random.Random(0), torch.Generator().manual_seed(0)
    sides = [[[_PATCH * draw.randint(4, 8) for _ in "yx"] for _ in range(_IMAGES)] for _ in range(_PACKS)]
    return [[torch.randn(3, *size, generator=generator) for size in pack] for pack in sides]


def serve() -> None:
    """Answer each line of the input, "encoding work inputs", with the processor seconds that all its inputs took."""
    given: dict[str, list[Any]] = {"packs": packs(), "uniform": [torch.randn(_IMAGES, 3, 24, 24)] * _PACKS}
    models: dict[str, tuple[torch.nn.Module, torch.optim.Optimizer]] = {}
    for line in questions():
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
        print((time.process_time() - started) / _PACKS, flush=True)


def step_times(encoding: str, dtype: torch.dtype, rounds: int) -> dict[str, list[float]]:
    """Seconds of a training step a thousand tokens, of packs and of a batch, in each round."""
    torch.manual_seed(0)
    model = create_model("vit_micro_patch4", encoding=encoding, num_classes=10).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    given: dict[str, Sequence[Any]] = {"packs": packs(), "uniform": [torch.randn(_IMAGES, 3, 32, 32)] * 2}
    tokens = {
        kind: sum(1 + image[0].numel() // _PATCH**2 for images in batches for image in images)
        for kind, batches in given.items()
    }
    times: dict[str, list[float]] = {kind: [] for kind in given}
    now = clock()
    for number in range(rounds + 1):
        for kind, batches in given.items():
            started = now()
            for images in batches:
                autocast = torch.autocast("cpu", dtype) if dtype != torch.float32 else contextlib.nullcontext()
                with autocast:
                    logits = model(images)
                logits.float().square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            if number:
                times[kind].append((now() - started) / tokens[kind] * 1000)
    return times


def against_uniform(chosen: Any) -> None:
    """Packs beside a batch of this source, and the rows kept."""
    path = destination(chosen.out, RESULTS / "tiny_packs.jsonl")
    rows = []
    cases = [(name, dtype) for name in chosen.encodings for dtype in (torch.float32, torch.bfloat16)]
    for (name, dtype), said in counted(cases):
        print(f"{said} {name} {dtype}", flush=True)
        about = {"encoding": name, "work": "step", "images": _IMAGES, "dtype": str(dtype).removeprefix("torch.")}
        times = step_times(name, dtype, chosen.rounds)
        rows.append(
            row("tiny_packs", "uniform", "packs", times, {}, **about, wanted=_WANTED if name == "lookhere_90" else None)
        )
        print_table(("encoding", "dtype", "ratio", "interval", "wanted", "subject_ms", "baseline_ms"), rows[-1:])
    (append if chosen.out is None else write)(rows, path)
    print(f"rows: {path}")


def main() -> None:
    parser = Against(__doc__, "tiny_packs")
    parser.add_argument("--encodings", nargs="+", default=_ENCODINGS, help="by their names")
    parser.add_argument("--inputs", nargs="+", choices=("packs", "uniform"), default=("packs", "uniform"))
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.side:
        serve()
        return
    if str(chosen.against) == "uniform":
        against_uniform(chosen)
        return
    cases = [
        (f"{name} {work} {kind}", {"encoding": name, "work": work, "inputs": kind, "images": _IMAGES})
        for kind in chosen.inputs
        for name in chosen.encodings
        for work in ("step", "forward")
    ]
    columns = ("encoding", "work", "inputs", "ratio", "interval", "subject_ms")
    beside("tiny_packs", __file__, chosen, cases, columns)


if __name__ == "__main__":
    main()
