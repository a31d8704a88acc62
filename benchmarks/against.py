"""This source beside that of another commit: training steps, forward passes, predict over photographs.

    git worktree add ../before COMMIT
    python benchmarks/against.py --against ../before [--kinds KIND ...] [--rounds 15] [--out OUT] [--threads 1]

Each side runs in a process of its own, which sleeps while the other works; in each round both do the same, the one that
begins in turn. `ratio` is the median of the rounds' own ratios, the other source's time over this one's (above 1: this
one is faster), and `interval` holds it with 95 % by the signs of the rounds. A step is the median of those of a short
training, `uniform` by the recipe vit_scenes and `packed` by navit_scenes; `predict` is the command over 200 images.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import Against, beside, questions

_KINDS = ("uniform_step", "packed_step", "forward_224", "forward_1024", "predict")
_PHOTOS = 200


def _models() -> Any:
    from sightline.models import create_model

    torch.manual_seed(0)
    return create_model


def _steps(recipe: str, folder: Path) -> Callable[[], float]:
    """Seconds of a step: the median of those of a short training, from what the loop itself says."""
    import dataclasses

    from sightline.recipes import recipe as named
    from sightline.training import train

    config = dataclasses.replace(named(recipe), images=640, flops=None, validation=None, checkpoint_every=10**6)
    number = iter(range(10**6))

    def measure() -> float:
        at: list[float] = []
        out = folder / f"{recipe}{next(number)}"
        train(config, out, test=False, device="cpu", observe=lambda _: at.append(time.perf_counter()))
        # The first step warms up and the last one saves.
        return statistics.median(after - before for before, after in itertools.pairwise(at[:-1]))

    return measure


def _forward(side: int) -> Callable[[], float]:
    model = _models()("vit_small_patch16", encoding="lookhere_90", num_classes=10).eval()
    images = torch.randn(8 if side < 512 else 1, 3, side, side)

    def measure() -> float:
        with torch.inference_mode():
            started = time.perf_counter()
            model(images)
            return time.perf_counter() - started

    return measure


def _predict(folder: Path) -> Callable[[], float]:
    import numpy as np
    from PIL import Image

    from sightline import save_model
    from sightline.cli.app import main

    save_model(_models()("vit_tiny_patch16", encoding="lookhere_90", num_classes=10), folder / "model")
    draws, photos = np.random.default_rng(0), folder / "photos"
    photos.mkdir()
    for number in range(_PHOTOS):
        height, width = draws.integers(200, 500, 2).tolist()
        coarse = Image.fromarray(draws.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8))
        coarse.resize((width, height)).save(photos / f"{number}.jpg")
    words = ["predict", str(folder / "model"), str(photos), "--resolution", "max:256", "--json"]

    def measure() -> float:
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main(words)
        assert code == 0, code
        return time.perf_counter() - started

    return measure


def serve() -> None:
    """Answer each line of the input, a kind, with its seconds."""
    works: dict[str, Callable[[], float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        makers: dict[str, Callable[[], Callable[[], float]]] = {
            "uniform_step": lambda: _steps("vit_scenes", folder),
            "packed_step": lambda: _steps("navit_scenes", folder),
            "forward_224": lambda: _forward(224),
            "forward_1024": lambda: _forward(1024),
            "predict": lambda: _predict(folder),
        }
        for kind in questions():
            if kind not in works:
                works[kind] = makers[kind]()
            print(works[kind](), flush=True)


def main() -> None:
    parser = Against(__doc__, "against")
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=_KINDS)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.side:
        serve()
        return
    cases = [(kind, {"kind": kind}) for kind in chosen.kinds]
    beside("against", __file__, chosen, cases, ("kind", "ratio", "interval", "subject_ms", "baseline_ms"))


if __name__ == "__main__":
    main()
