"""What a run would be: its whole configuration, what it takes, what is missing, and two small steps of it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.analysis.memory import estimate_memory
from sightline.cli.next_step import warn
from sightline.cli.progress import Bars
from sightline.cli.run_config import largest_pass
from sightline.cli.train_run import TrainRequest, ready
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.io.config import dump_config
from sightline.io.read import format_bytes
from sightline.io.run_files import LOG
from sightline.io.run_lock import RunLock
from sightline.io.yaml import dump_yaml
from sightline.reports.tables import print_table
from sightline.training import loop
from sightline.training.config import TrainConfig
from sightline.training.log import read_log
from sightline.training.plan import Cost, EpochPlan, SizeSchedule, training_plan
from sightline.training.prepare import TrainSetup
from sightline.training.validation import VALIDATION_SPLIT, suggested_share

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
        missing: what stands in its way, or would be of use, in words.
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
        about = "about " if self.config.packing is not None else ""
        return [
            ("images", f"{splits}; {self.classes:,} classes"),
            ("parameters", f"{self.parameters:,}"),
            ("steps", f"{about}{self.steps:,} of {about}{self.spent.images / max(self.steps, 1):,.0f} images"),
            ("shown", f"{about}{self.spent.images:,} images, {self.spent.tokens:,} tokens"),
            ("operations", f"{about}{self.spent.flops:.3g}"),
            ("memory of a process", f"{memory}{here}"),
            (f"{len(self.losses)} small steps", f"{steps}, of at most {_IMAGES} images; loss {self.losses[-1]:.4g}"),
            ("missing", "; ".join(self.missing) or "nothing"),
        ]

    def as_record(self) -> dict[str, Any]:
        """Plain values."""
        return {**dataclasses.asdict(self), "spent": self.spent._asdict()}


def say_dry_run(asked: TrainRequest, bars: Bars, *, as_json: bool = False) -> None:
    """Print what `dry_run` finds: the configuration, as `--config` takes it, and a table; or one JSON object."""
    found = dry_run(asked, bars)
    if not asked.ranks.is_main:
        return
    if as_json:
        print(json.dumps(found.as_record()))
        return
    print(dump_yaml(dump_config(found.config)), end="")
    print_table(("a dry run", ""), found.rows())


def dry_run(asked: TrainRequest, bars: Bars) -> DryRun:
    """Decide and check a run as `carry_out` does, and make two small steps of it; nothing is left behind.

    Raises:
        SightlineError: what stands against it.
    """
    prepared = ready(asked, bars)
    config, source, model = prepared.config, prepared.source, prepared.model
    steps, spent = _length(prepared)
    image_size, batch = largest_pass(config, model.config, source.length("train"), asked.ranks.size)
    training = {"dtype": config.precision, "training": True, "ema": config.optimizer.ema is not None, "saves": True}
    training["sharers"] = asked.ranks.size if config.sharing == "fsdp" else 1
    try:
        memory = estimate_memory(model.config, image_size, batch=batch, device=asked.where, **training).total
    except InputError:
        memory = None
    available = machine.available_memory(asked.where)
    images = {split: source.length(split) for split in source.splits}
    missing = _missing(config, images, memory, available, asked)
    small = dataclasses.replace(
        _few(config), images=STEPS * _IMAGES, checkpoint_every=None, validation=None, frozen=config.frozen,
        optimizer=dataclasses.replace(config.optimizer, warmup=0.1, cooldown=0.0),
    )  # fmt: skip
    seen: list[loop.TrainProgress] = []
    with tempfile.TemporaryDirectory() as folder, RunLock(Path(folder) / "run") as lock:
        setup = TrainSetup(small, source, None, model)
        loop.train_loop(setup, lock.folder, device=asked.where, lock=lock, observe=seen.append, warn=warn)
        losses = [line["loss"] for line in read_log(lock.folder / LOG)]
    ends = [0.0, *(one.seconds for one in seen)]
    return DryRun(
        config, images, len(source.classes or source.pixel_classes or source.object_classes),
        sum(one.numel() for one in model.parameters()), steps, spent, memory, available, missing,
        losses,
        [end - begin for begin, end in itertools.pairwise(ends)],
    )  # fmt: skip


def _few(config: TrainConfig) -> TrainConfig:
    """The same with few images at once."""
    packing = config.packing
    if packing is not None:
        tokens = _IMAGES * min(packing.most_tokens or packing.tokens, 1024)
        packing = dataclasses.replace(
            packing, tokens=tokens, padded=None, most_tokens=min(tokens, 1024), most_images=_IMAGES
        )
    return dataclasses.replace(
        config, batch_size=_IMAGES, accumulate=1, packing=packing, images=config.images, repeats=1
    )


def _length(prepared: TrainSetup) -> tuple[int, Cost]:
    """How many steps a run has, and what it takes in all."""
    config, model, source = prepared.config, prepared.model.config, prepared.source
    if config.packing is None:
        plan = EpochPlan.of(config, source.length("train"))
        return plan.steps, SizeSchedule.of(config, model).spent(plan, plan.steps)
    first = [step for step, _ in itertools.islice(training_plan(config, model, source).steps(0), _PLANNED)][-1]
    whole = Cost(*(round(value / first.ends) for value in first.after))
    return round((first.number + 1) / first.ends), whole


def _missing(
    config: TrainConfig, images: dict[str, int | None], memory: int | None, available: int | None, asked: TrainRequest
) -> list[str]:
    """What stands in a run's way here, and what it would be better for."""
    said = []
    if memory is not None and available is not None and memory > available:
        parts = -(-memory // available) * config.accumulate
        said.append(f"memory (--set accumulate={2 * parts}, --set recompute=true, or more processes)")
    if asked.where.type == "cpu":
        said.append("a GPU")
    if VALIDATION_SPLIT not in images and config.validation is not None:
        data = shlex.quote(f"{config.data},{VALIDATION_SPLIT}={suggested_share(images.get('train')):g}")
        said.append(f"a split {VALIDATION_SPLIT}, for a curve and the best checkpoint (--data {data})")
    if "test" not in images:
        said.append("a split test, to be tested on")
    return said
