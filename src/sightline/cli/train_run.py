"""One run from its checked configuration to its measured rows: what `sightline train` and each cell of a sweep do."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from sightline.cli import output, run_config
from sightline.cli.config import named_after
from sightline.cli.next_step import warn
from sightline.cli.progress import Bars
from sightline.distributed import signals
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.evaluation import measure
from sightline.io.read import format_bytes
from sightline.reports.words import quantity
from sightline.training.checkpointer import last_whole
from sightline.training.config import TrainConfig
from sightline.training.loop import TrainProgress
from sightline.training.prepare import TrainSetup, resolve_config, set_up
from sightline.training.run import TrainResult, tested_splits, train
from sightline.training.tracking import check_trackers


@dataclass(frozen=True)
class TrainRequest:
    """A run as it was asked for.

    Attributes:
        config: checked, and not yet resolved; sources: its data set, opened once.
        place: its folder; device: where it is computed, as it was named.
        file: the YAML file that it was asked for by, for what is refused.
        resume: go on from its last checkpoint; accept_changed_data: also where the data is not what it was.
        test: what is measured of it; True tests it as it was trained, False leaves that out.
        trackers: names of programs that draw its curves; profile: as `train`.
        ranks: that train it together, of which this process is one; the first alone writes and tests.
    """

    config: TrainConfig
    sources: run_config.TrainingSources
    place: output.RunFolder
    where: torch.device
    device: str = "auto"
    file: Path | None = None
    resume: bool = False
    accept_changed_data: bool = False
    test: measure.EvaluateConfig | bool = True
    trackers: tuple[str, ...] = ()
    profile: bool = False
    ranks: Ranks = SINGLE_RANK


def ready(asked: TrainRequest, bars: Bars) -> TrainSetup:
    """A run before anything of it is written.

    Raises:
        SightlineError: what stands against it.
    """
    config, sources, place, folder = asked.config, asked.sources, asked.place, asked.place.out
    check_trackers(asked.trackers)
    if asked.ranks.is_main:
        place.check()
    with named_after(asked.file):
        source = sources.open(config)
    before = last_whole(folder, warn) if asked.resume else None
    with named_after(asked.file or Path("train")):
        decided = resolve_config(config, source, asked.where, before)
    built = run_config.built_model(decided, source, asked.file, asked.where, asked.ranks.size)
    splits = tested_splits(asked.test, source)
    # Also those that it is tested on: now, and not after hours of training.
    source = bars.read_headers(source, ("train", *splits), config.skip_unreadable)
    sources.say(config)
    return set_up(
        decided,
        source,
        built,
        before,
        init_from=config.init_from,
        accept_changed_data=asked.accept_changed_data,
        warn=warn,
        progress=functools.partial(bars.move, "comparing files"),
    )


def carry_out(asked: TrainRequest, bars: Bars, way_on: Callable[[Path], str] | None = None) -> TrainResult:
    """Train, test, and leave all in the folder of the run, which this process holds.

    Args:
        way_on: the command that goes on with what is in the folder, for whoever stops it.

    Raises:
        SightlineError, KeyboardInterrupt: as `sightline.training.train`.
    """
    folder = asked.place.out
    setup = ready(asked, bars)
    with contextlib.nullcontext() if way_on is None else signals.resume_hint(way_on(folder)):
        done = train(
            setup.config,
            folder,
            setup=setup,
            test=asked.test,
            device=asked.device,
            trackers=asked.trackers,
            profile=asked.profile,
            observe=lambda at: bars.move(f"training {setup.config.encoding}", at.images, at.total, *_notes(at)),
            on_tested=functools.partial(bars.move, "testing"),
            warn=warn,
            lock=lambda: asked.place.claimed(warn),
            ranks=asked.ranks,
        )
        bars.say_left_out(setup.source)
    return done


def _notes(at: TrainProgress) -> list[str]:
    """What stands behind the bar of a training, the most wanted first."""
    notes = ["no image could be read" if at.loss is None else f"loss {at.loss:.3f}"]
    if at.validated is not None:
        notes.append(f"minival {quantity(at.validated.value, at.validated.unit)}")
    if at.pace.rates is not None:
        notes += [f"{at.pace.rates.images:,.0f} img/s", f"{at.pace.rates.tokens:,.0f} tok/s"]
    if at.pace.peak_share is not None:
        notes.append(f"{100 * at.pace.peak_share:.0f} % of peak")
    return [*notes, format_bytes(at.pace.memory)]
