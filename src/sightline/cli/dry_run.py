"""What a run would be: its whole configuration, what it takes, what is missing, and two small steps of it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.analysis.memory import estimate_memory
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.io.read import format_bytes
from sightline.io.run_files import LOG
from sightline.io.run_lock import RunLock
from sightline.reports.tables import print_table
from sightline.training import loop
from sightline.training.config import TrainConfig
from sightline.training.log import read_log
from sightline.training.plan import Cost, EpochPlan, SizeSchedule, training_plan
from sightline.training.setup import TrainSetup, largest_pass
from sightline.training.validation import suggested_share

# Small steps that are made (one more where packs have room left), and images of each at most.
STEPS, _IMAGES = 2, 4
# Steps of a packed run of which its length is told.
_PLANNED = 32


@dataclass(frozen=True)
class DryRun:
    """What was found out.

    Attributes:
        config: resolved, as the run would have it.
        images: of each split, None of an endless one; classes: of the data.
        parameters: of the model.
        steps: of the run, and `spent` what it would take in all; both are told of its first steps where it is packed.
        memory: bytes of a process at its peak, None where that is not known; available: here.
        missing: what it does not find here, or in the data, in words.
        losses, seconds: of the small steps that were made.
    """

    config: TrainConfig
    images: dict[str, int | None]
    classes: int
    parameters: int
    steps: int
    spent: Cost
    memory: int | None
    available: int | None
    missing: list[str]
    losses: list[float]
    seconds: list[float]

    def rows(self) -> list[tuple[str, str]]:
        """What is shown: a name and words."""
        splits = ", ".join(f"{'endless' if n is None else f'{n:,}'} {name}" for name, n in self.images.items())
        memory = "not known" if self.memory is None else format_bytes(self.memory)
        here = "" if self.available is None else f"; {format_bytes(self.available)} here"
        steps = ", ".join(f"{one:.3g} s" for one in self.seconds)
        packed = self.config.packing is not None
        about = "about " if packed else ""
        most = self.config.batch_size or 0
        batch = f"about {self.spent.images / max(self.steps, 1):,.0f}" if packed else f"{most:,}"
        if not packed and self.spent.images < self.steps * most:
            batch = f"at most {batch}"
        return [
            ("images", f"{splits}; {self.classes:,} classes"),
            ("parameters", f"{self.parameters:,}"),
            ("steps", f"{about}{self.steps:,} of {batch} images"),
            ("shown", f"{about}{self.spent.images:,} images, {self.spent.tokens:,} tokens"),
            ("operations", f"{about}{self.spent.flops:.3g}"),
            ("memory of a process", f"{memory}{here}"),
            (f"{len(self.losses)} small steps", f"{steps}, of at most {_IMAGES} images; loss {self.losses[-1]:.4g}"),
            ("missing", "; ".join(self.missing) or "nothing"),
        ]

    def as_record(self) -> dict[str, Any]:
        """Plain values."""
        return {**dataclasses.asdict(self), "spent": self.spent._asdict()}


def print_dry_run(found: DryRun, *, as_json: bool = False) -> None:
    """Print what was found as a table, or as one JSON object with the whole configuration."""
    if as_json:
        print(json.dumps(found.as_record()))
        return
    print_table(("a dry run", ""), found.rows())
    print("every setting, as JSON: add --json")


def dry_run(setup: TrainSetup, device: torch.device, processes: int, warn: Callable[[str], None]) -> DryRun:
    """Make two small steps of a run, of which nothing is left behind, and say what it would be.

    Raises:
        SightlineError: what stands against it.
    """
    config, source, model = setup.config, setup.source, setup.model
    steps, spent = _length(setup)
    image_size, options = largest_pass(config, model.config, source.length("train"), processes)
    try:
        memory = estimate_memory(model.config, image_size, saves=True, device=device, **options).total
    except InputError:
        memory = None
    available = machine.available_memory(device)
    images = {split: source.length(split) for split in source.splits}
    missing = []
    if memory is not None and available is not None and memory > available:
        parts = -(-memory // available) * config.accumulate
        missing.append(f"memory (--accumulate {2 * parts}, --recompute, or more processes)")
    if source.validation_split is None and config.validation is not None:
        data = shlex.quote(f"{config.data},minival={suggested_share(images.get('train')):g}")
        missing.append(f"a split minival, for a curve and the best checkpoint (--data {data})")
    if "test" not in images:
        missing.append("a split test, to be tested on")
    small = TrainSetup(_few(config), source, None, model)
    seen: list[loop.TrainProgress] = []
    with tempfile.TemporaryDirectory() as folder, RunLock(Path(folder) / "run") as lock:
        loop.train_loop(small, lock.folder, device=device, lock=lock, observe=seen.append, warn=warn)
        losses = [line["loss"] for line in read_log(lock.folder / LOG)]
    seconds = [after - before for before, after in itertools.pairwise([0.0, *(one.seconds for one in seen)])]
    return DryRun(
        config, images, len(source.classes or source.pixel_classes or source.object_classes),
        sum(one.numel() for one in model.parameters()), steps, spent, memory, available, missing, losses, seconds,
    )  # fmt: skip


def _few(config: TrainConfig) -> TrainConfig:
    """The same with few steps, of few images at once."""
    packing = config.packing
    if packing is not None:
        tokens = _IMAGES * min(packing.most_tokens or packing.tokens, 1024)
        packing = dataclasses.replace(
            packing, tokens=tokens, padded=None, most_tokens=min(tokens, 1024), most_images=_IMAGES
        )
    return dataclasses.replace(
        config, batch_size=_IMAGES, accumulate=1, packing=packing, repeats=1, images=STEPS * _IMAGES, epochs=None,
        tokens=None, flops=None, checkpoint_every=None, validation=None,
        optimizer=dataclasses.replace(config.optimizer, warmup=0.1, cooldown=0.0),
    )  # fmt: skip


def _length(setup: TrainSetup) -> tuple[int, Cost]:
    """How many steps a run has, and what it takes in all."""
    config, model, source = setup.config, setup.model.config, setup.source
    if config.packing is None:
        plan = EpochPlan.of(config, source.length("train"))
        return plan.steps, SizeSchedule.of(config, model).spent(plan, plan.steps)
    first = [step for step, _ in itertools.islice(training_plan(config, model, source).steps(0), _PLANNED)][-1]
    whole = Cost(*(round(value / first.ends) for value in first.after))
    return round((first.number + 1) / first.ends), whole
