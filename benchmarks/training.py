"""Training a ViT-S/16 at 224 px: the steps of our loop, beside an equally plain loop over timm's.

    python benchmarks/training.py [--quick] [--rounds 12] [--batch 8] [--out OUT] [--threads 1] [--device cpu|cuda]

The subject is `train_loop` as it is called by the command: the batch made of images in memory, the step with its
checks, the log line, all but checkpoints. The baseline is the usual loop over timm's vit_small_patch16_224: the
same images, loss, AdamW (fused, decay on matrices alone), clip and precision. After each step of ours one of theirs is
taken; a ratio is their time over ours, the images a second of ours over theirs. At least `wanted` is expected with the
encoding that theirs has (learned_1d). A processor without bfloat16 computes it ten times as slowly as float32: there
its steps are of one image, and fewer.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from measure import Parser, clock, counted, print_table, row, threads
from timm_vit import timm_vit
from torch import nn

from sightline.data.source import Example, Source
from sightline.data.targets import Label
from sightline.distributed import machine
from sightline.io.config import Precision
from sightline.tasks.classification import Loss
from sightline.training import TrainProgress, train
from sightline.training.config import OptimizerConfig, TrainConfig

_SIDE, _CLASSES, _CLIP, _RATE, _DECAY = 224, 1000, 1.0, 1e-3, 0.05
# Ours and timm's, and what both are made with.
_SMALL = ("vit_small_patch16", "vit_small_patch16_224", {})
_QUICK = ("vit_tiny_patch16", "vit_tiny_patch16_224", {"depth": 1})
_ENCODINGS = ("learned_1d", "lookhere_90")
_DTYPES: tuple[Precision, ...] = ("float32", "bfloat16")
_WANTED = {"learned_1d": 0.98}
# What images are normalised by: mean and deviation of each channel.
_NORMAL = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_COLUMNS = ("encoding", "dtype", "loss", "ratio", "interval", "wanted", "subject_images_s", "baseline_images_s")


class Noise(Source):
    """A few images of noise in memory, shown as they are."""

    name: ClassVar[str] = "noise"
    task = "classification"
    classes = tuple(map(str, range(_CLASSES)))
    splits = ("train",)

    def __init__(self, images: int) -> None:
        shape = (images, _SIDE, _SIDE, 3)
        self.groups = {}
        self.images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)

    @classmethod
    def open(cls, argument: str) -> Self:
        return cls(int(argument))

    def length(self, split: str) -> int:
        return len(self.images)

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        return Example(self.images[index], Label(index % _CLASSES), str(index))


def usual_loop(model: Any, source: Noise, loss: Loss, precision: str, device: str) -> Iterator[float]:
    """A step of the usual training of a model each time that it is asked for the next loss."""
    model = model.to(device).train()
    groups = [[one for one in model.parameters() if (one.dim() >= 2) is matrices] for matrices in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": _DECAY}, {"params": groups[1], "weight_decay": 0.0}],
        lr=_RATE, betas=OptimizerConfig().betas, fused=True,
    )  # fmt: skip
    mean, std = (torch.tensor(one, device=device).view(3, 1, 1) for one in _NORMAL)
    order = np.random.default_rng(0)
    while True:
        chosen = order.permutation(len(source.images))
        made = [torch.from_numpy(source.images[one]).permute(2, 0, 1) for one in chosen]
        images = torch.stack(made).to(device).float().div_(255).sub_(mean).div_(std)
        labels = torch.tensor(chosen % _CLASSES, device=device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(images)
        if loss == "ce":
            value = F.cross_entropy(logits.float(), labels)
        else:
            target = F.one_hot(labels, _CLASSES).float()
            value = F.binary_cross_entropy_with_logits(logits.float(), target, reduction="sum") / len(images)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()
        yield float(value.detach())


@contextlib.contextmanager
def _as_usual() -> Iterator[None]:
    """Inside, torch is as a plain loop finds it: ours asks for deterministic kernels."""
    was, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warned)


def compare(
    encoding: str, precision: Precision, loss: Loss, rounds: int, batch: int, quick: bool, device: str
) -> dict[str, Any] | None:
    """The row of one case; None where timm is missing."""
    ours, name, options = _QUICK if quick else _SMALL
    torch.manual_seed(0)
    theirs = timm_vit(name, _SIDE, **options)
    if theirs is None:
        return None
    source = Noise(batch)
    step = usual_loop(theirs, source, loss, precision, device)
    now, times = _clock(device), {"sightline": [], "timm": []}
    began = now()
    every = range(2, rounds + 2)

    def observe(progress: TrainProgress) -> None:
        nonlocal began
        ended = now()
        with _as_usual():
            next(step)
        # The first step warms up, and the last one saves.
        if progress.step in every:
            times["sightline"].append(ended - began)
            times["timm"].append(now() - ended)
        began = now()

    config = TrainConfig(
        data="noise", model=ours, model_options=options, encoding=encoding, resolution=_SIDE, batch_size=batch,
        images=(rounds + 2) * batch, loss=loss, precision=precision, validation=None, checkpoint_every=10**9,
        optimizer=OptimizerConfig(lr=_RATE, weight_decay=_DECAY, clip=_CLIP),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        run = train(config, Path(place) / "run", source=source, test=False, device=device, observe=observe)
        model = run.model
    mine, usual = (sum(one.numel() for one in some.parameters()) for some in (model, theirs))
    # The same model, where it has the same encoding.
    assert mine == usual or encoding != "learned_1d", (mine, usual)
    made = row(
        "training", "sightline", "timm", times, {}, device, encoding=encoding, dtype=precision, loss=loss, model=ours,
        resolution=_SIDE, batch=batch, parameters=mine, clock=clock().__name__, wanted=_WANTED.get(encoding),
    )  # fmt: skip
    speeds = {f"{side}_images_s": round(1e3 * batch / made[f"{side}_ms"], 2) for side in ("subject", "baseline")}
    return made | speeds


def _clock(device: str) -> Callable[[], float]:
    """As `measure.clock`, after what a GPU was asked to do."""
    by = clock()
    if device == "cpu":
        return by

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return by()

    return synchronised


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("training", "a ViT-Ti of one layer, few images and steps: for what rows say, not for speeds")
    parser.add_argument(
        "--rounds", type=threads, help="timed steps of each; 12, or 2 if --quick; at least 6 give 95 %%"
    )
    parser.add_argument("--batch", type=threads, help="images of a step; 8, or 2 if --quick")
    parser.add_argument(
        "--losses", nargs="+", choices=get_args(Loss), default=["bce"], help="bce alone, unless others are said"
    )
    chosen = parser.begin()
    every = itertools.product(_ENCODINGS, _DTYPES, get_args(Loss))
    cases = [case for case in every if case[2] in chosen.losses]
    rows = []
    for (encoding, precision, loss), said in counted(cases):
        slow = precision == "bfloat16" and chosen.device == "cpu" and not machine.has_cpu_feature("avx512_bf16")
        rounds = chosen.rounds or (2 if chosen.quick else 6 if slow else 12)
        batch = chosen.batch or (1 if slow else 2 if chosen.quick else 8)
        print(f"{said} {encoding}, {precision}, {loss}: {rounds} steps of {batch} images each", flush=True)
        made = compare(encoding, precision, loss, rounds, batch, chosen.quick, chosen.device)
        if made is None:
            print("timm: not measured (pip install timm)")
            return
        rows.append(made)
        print_table(_COLUMNS, [made | {"wanted": made["wanted"] or "-"}])
    parser.save(rows)
    print(f"rows: {parser.path}")


if __name__ == "__main__":
    main()
