"""One run from its checked configuration to its measured rows: what `sightline train` and each cell of a sweep do."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.cli import output, run_config
from sightline.cli.config import named_after
from sightline.cli.next_step import warn
from sightline.cli.progress import Bars
from sightline.data.source import Source
from sightline.distributed import signals
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.evaluation import measure
from sightline.evaluation.as_trained import views_as_trained
from sightline.evaluation.drawn import write_pictures
from sightline.hub.load import read_config_record
from sightline.io.config import dump_config
from sightline.io.read import format_bytes
from sightline.io.run_files import PREDICTIONS, RESULTS
from sightline.reports.words import quantity
from sightline.results.predictions import Prediction
from sightline.results.rows import ResultRow
from sightline.training import loop
from sightline.training.checkpointer import last_whole
from sightline.training.config import TrainConfig
from sightline.training.prepare import TrainSetup, resolve_config, set_up
from sightline.training.run import Run, open_run
from sightline.training.tracking import check_trackers, tracking


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


@dataclass(frozen=True)
class Trained:
    """What came of a run.

    Attributes:
        config: resolved; last: where its training ended, None where that was complete before.
        rows: what was measured; none where it was not tested.
        measured: how it was tested; opened: its model and data for that. None where it was not.
    """

    config: TrainConfig
    last: loop.TrainProgress | None
    rows: list[ResultRow]
    measured: measure.EvaluateConfig | None = None
    opened: Run | None = None


def ready(asked: TrainRequest, bars: Bars) -> tuple[TrainSetup, tuple[str, ...]]:
    """A run before anything of it is written, and the splits that it is tested on.

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
    splits = _tested_splits(asked.test, source)
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
    ), splits


def carry_out(asked: TrainRequest, bars: Bars, way_on: Callable[[Path], str] | None = None) -> Trained:
    """Train, test, and leave all in the folder of the run, which this process holds.

    Args:
        way_on: the command that goes on with what is in the folder, for whoever stops it.

    Raises:
        SightlineError: as `train` and `evaluate` raise it.
        KeyboardInterrupt: a signal came while it was not training.
    """
    place, folder = asked.place, asked.place.out
    with contextlib.ExitStack() as held:
        prepared, splits = ready(asked, bars)
        resolved, source = prepared.config, prepared.source
        lock = None
        if asked.ranks.is_main:
            lock = held.enter_context(place.claimed(warn))
            run_config.save_config(resolved, folder)
        if way_on is not None:
            held.enter_context(signals.resume_hint(way_on(folder)))
        last: loop.TrainProgress | None = None

        def observe(at: loop.TrainProgress) -> None:
            nonlocal last
            last = at
            track(at)
            bars.move(f"training {resolved.encoding}", at.images, at.total, *_notes(at))

        saved = 0 if prepared.last is None else read_config_record(prepared.last)["training"].get("step", 0)
        names = asked.trackers if asked.ranks.is_main else ()
        track = held.enter_context(tracking(names, folder, dump_config(resolved), saved, warn))
        # Told in the last step, it is not tested: what was trained is whole.
        with signals.defer_interrupts() as told:
            loop.train(
                resolved,
                folder,
                prepared=prepared,
                device=asked.device,
                observe=observe,
                warn=warn,
                lock=lock,
                stop=told.is_set,
                ranks=asked.ranks,
                profile=asked.profile,
            )
        if lock is None:
            return Trained(resolved, last, [])
        bars.say_left_out(source)
        lock.check()
        if not splits:
            return Trained(resolved, last, [])
        tested = open_run(folder, device=asked.where, source=source)
        measured = _as_trained(resolved, tested, splits[0]) if isinstance(asked.test, bool) else asked.test
        side = resolved.resolution
        assert side is not None
        advance = bars.counter("testing", measure.planned_images(source, tested.model, measured, side))
        answers: list[Prediction] = []
        pictures: dict[str, Any] = {}
        rows = measure.evaluate(
            tested.model, source, measured, tested.identity, advance=advance, answers=answers, pictures=pictures
        )
        bars.say_left_out(source)
        lock.check()
        # What was measured before is of other weights, unless the run was complete already.
        output.add_predictions(folder / PREDICTIONS, answers, anew=last is not None)
        output.add_rows(folder / RESULTS, rows, anew=last is not None)
        write_pictures(rows, pictures, folder)
    return Trained(resolved, last, rows, measured, tested)


def _notes(at: loop.TrainProgress) -> list[str]:
    """What stands behind the bar of a training, the most wanted first."""
    notes = [] if at.loss is None else [f"loss {at.loss:.3f}"]
    if at.validated is not None:
        notes.append(f"minival {quantity(at.validated.value, at.validated.unit)}")
    if at.pace.rates is not None:
        notes += [f"{at.pace.rates.images:,.0f} img/s", f"{at.pace.rates.tokens:,.0f} tok/s"]
    if at.pace.peak_share is not None:
        notes.append(f"{100 * at.pace.peak_share:.0f} % of peak")
    return [*notes, format_bytes(at.pace.memory)]


def _tested_splits(test: measure.EvaluateConfig | bool, source: Source) -> tuple[str, ...]:
    """The splits that a run is tested on; none where it is not, or the data has none."""
    if isinstance(test, measure.EvaluateConfig):
        return test.splits
    return tuple(name for name in ("test", "minival") if name in source.splits)[:1] if test else ()


def _as_trained(resolved: TrainConfig, tested: Run, split: str) -> measure.EvaluateConfig:
    """A test at the size of the training; of a packed run at native aspect on images at their own aspect too."""
    side = resolved.resolution
    assert side is not None
    source, patch = tested.source, tested.model.config.patch_size
    own = views_as_trained(resolved.packing, side, patch, source, split)
    return measure.EvaluateConfig((side, *own[:1]), (split,), images=measure.default_image_count(source))
