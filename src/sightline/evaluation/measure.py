"""Every metric of a model's task by resolution, as rows."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL.Image import Image

from sightline.attention.cpu import chosen_precision
from sightline.data.crops import apply_crop, size_of, whole_crop
from sightline.data.sizes import View
from sightline.data.source import Example, Source
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.evaluation.config import UNTUNED, EvaluateConfig, RunInfo
from sightline.evaluation.counted import Answers, SplitResult, measure_split
from sightline.evaluation.drawn import picture_name
from sightline.evaluation.logits import StoredLogits, logits_name, rows_of, task_record
from sightline.evaluation.measures.base import MeasureInput, checked_measures, measure_class
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import frames_of, is_rendered
from sightline.evaluation.result_files import answer_of
from sightline.evaluation.temperature import SPLIT, check_task, told_temperature
from sightline.evaluation.tune import Search, searches_of, tune, tuned_at, tuning_passes
from sightline.io.run_files import PICTURES
from sightline.metrics.tempered import Temperature, with_temperature
from sightline.models import Model
from sightline.results.rows import SQUARE, ResultRow
from sightline.tasks.base import check_provided, task_of
from sightline.tokens.patchify import check_channels, check_multiples


def check_sizes(model: Model, config: EvaluateConfig) -> None:
    """Refuse what the model cannot be shown, and resolutions of which it makes no grid, before anything is measured."""
    check_channels(model.config.channels)
    if model.config.fit == "exact":
        check_multiples("resolution {}", config.sides, model.config.patch_size)
    for side in config.sides:
        model.config.grid_of(side)


def default_image_count(source: Source) -> int | None:
    """How many images of a split are measured unless it is said: 2000 of a drawn one, all of one that was read."""
    return 2000 if source.is_synthetic else None


@dataclass(frozen=True, eq=False)
class Measurement:
    """A split, shown in one way.

    Attributes:
        indices: of its images; frames: of each clip, None of images.
        tuned: at what the searches find; shrunk: the side that images are shrunk to first, in pixels.
        searches: what is searched on `searched`, images of `minival`, before.
        measures: names of what is measured beside the answers.
        keeps_answers: what is said of each image is kept of this one.
    """

    split: str
    view: int | View
    indices: Sequence[int]
    frames: int | None = None
    tuned: bool = False
    shrunk: int | None = None
    searches: tuple[Search, ...] = ()
    searched: Sequence[int] = ()
    measures: tuple[str, ...] = ()
    keeps_answers: bool = False

    @property
    def shown(self) -> tuple[str, int | None]:
        """The name of the view and the side in pixels, as rows have them."""
        return (self.view.name, None) if isinstance(self.view, View) else (SQUARE, self.view)

    @property
    def way(self) -> tuple[object, ...]:
        """How images are shown, whatever the split."""
        return (*self.shown, self.tuned, self.shrunk)

    @property
    def fields(self) -> dict[str, Any]:
        """What its rows say of it."""
        view, resolution = self.shown
        frames = {} if self.frames is None else {"frames": self.frames}
        return {
            "view": view, "resolution": resolution, "split": self.split, "tuned": self.tuned, "shrunk": self.shrunk,
            **frames,
        }  # fmt: skip

    def key(self, *what: object) -> str:
        """Of an item of work on it."""
        return json.dumps([*what, self.split, *self.way, self.frames])


def plan_evaluation(source: Source, model: Model, config: EvaluateConfig, train_resolution: int) -> list[Measurement]:
    """Every measurement in order; of a split and view first as the encoding stands, then tuned, then of shrunk images.

    Raises:
        InputError: as `measurements`.
    """
    plan, frames = list[Measurement](), frames_of(source, model)
    for split, view in measurements(source, config, train_resolution):
        asked, length = split in config.splits, source.length(split)
        most = config.temperature_images
        count = config.count(length, view) if asked else most if length is None else min(most, length)
        ways: list[tuple[bool, int | None]] = [(False, None)]
        searches, searched = tuple[Search, ...](), range(0)
        if config.tunes(split, model.encoding):
            most = min(config.tune_images, source.length(SPLIT) or config.tune_images)
            searched = spread_indices(source, SPLIT, most)
            searches = tuple(searches_of(model.encoding, config.tuned, view, model.config.patch_size))
            ways = [(True, None)] if config.knobs == "tuned" else [(False, None), (True, None)]
        if config.shrink and isinstance(view, int) and view > train_resolution:
            ways.append((False, train_resolution))
        indices = spread_indices(source, split, count)
        for number, (tuned, small) in enumerate(ways):
            plan.append(
                Measurement(
                    split, view, indices, frames, tuned, small, searches if tuned else (), searched,
                    config.measures if asked and small is None else (), asked and number == 0,
                )
            )  # fmt: skip
    return plan


def planned_images(source: Source, model: Model, config: EvaluateConfig, train_resolution: int) -> int:
    """How many images `evaluate` will pass through the model: the length of its progress bar."""
    plan = plan_evaluation(source, model, config, train_resolution)
    # What was found for the first split holds for all.
    searched = {one.shown: tuning_passes(one.searches, len(one.searched)) for one in reversed(plan) if one.searches}
    beside = (measure_class(name).passes(source, one.split, len(one.indices)) for one in plan for name in one.measures)
    return sum(len(one.indices) for one in plan) + sum(searched.values()) + sum(beside)


def splits_read(source: Source, config: EvaluateConfig) -> tuple[str, ...]:
    """The splits whose images `evaluate` looks at: those measured, and those that anything is chosen by or learned
    from."""
    beside = [
        name for one in config.measures for split in config.splits for name in measure_class(one).reads(source, split)
    ]
    chosen = [SPLIT] if config.knobs != "default" or config.temperature else []
    return tuple(dict.fromkeys([*config.splits, *chosen, *beside]))


def measurements(source: Source, config: EvaluateConfig, train_resolution: int) -> list[tuple[str, int | View]]:
    """(split, size or view) of each, in order; `heldout_fonts` at the training resolution alone, `minival` first where
    a temperature is fitted on it.

    Raises:
        InputError: there is no such split, or no such view of it.
    """
    for split in config.splits:
        source.check(split)
        for view in config.views:
            if view.kind == "native" and is_rendered(source, split):
                own = f"{source.name} has images of no size of their own"
                raise InputError(f"resolution {view.name}: {own} (expected: sides in pixels, or tokens:PATCHES)")
    if config.knobs != "default":
        if "minival" not in source.splits:
            raise InputError(f"tune: data {source.name!r} has no split 'minival' (has: {', '.join(source.splits)})")
        if all(split in UNTUNED for split in config.splits):
            others = ", ".join(split for split in source.splits if split not in UNTUNED) or "none"
            raise InputError(
                f"tune: is for no split of {', '.join(config.splits)}: minival is what is searched on "
                f"(splits that are measured with what was found: {others})"
            )
    if config.temperature and SPLIT not in source.splits:
        raise InputError(f"temperature: data {source.name!r} has no split {SPLIT!r} (has: {', '.join(source.splits)})")
    asked = [
        (split, resolution)
        for split in config.splits
        for resolution in (config.resolutions if split != "heldout_fonts" else (train_resolution,))
    ]
    if not config.temperature:
        return asked
    return list(dict.fromkeys([*((SPLIT, resolution) for _, resolution in asked), *asked]))


def evaluate(
    model: Model,
    source: Source,
    config: EvaluateConfig,
    identity: RunInfo,
    *,
    advance: Callable[[int], None] | None = None,
    answers: list[Any] | None = None,
    wanted: Answers = "prediction_records",
    pictures: dict[str, Image] | None = None,
    pictures_in: str = PICTURES,
    parts: WorkFolder | None = None,
    keep: Callable[[str, StoredLogits], None] | None = None,
) -> list[ResultRow]:
    """Rows of every metric of the model's task at each resolution, at the knob's default and tuned.

    Of several ranks each must call it, and the first alone has rows.

    Args:
        advance: called with the number of images of each batch.
        answers: what was said of each image is added to it, by the model as it stands where that is measured.
        wanted: which method of the task says it, of what `answer_of` makes.
        pictures: what rows name, in the folder `pictures_in`, is added to it (`write_pictures`), where the task draws
            anything.
        parts: what is finished of it (`kept_beside`), and the ranks that measure together; none of one process.
        keep: called on the first rank with the logits of each measurement of a classifier, and the name of their file.

    Raises:
        InputError: a split, a class or a resolution does not fit the model.
    """
    check_sizes(model, config)
    task, device = task_of(model, config.task_options).bind(source, identity.data), model.anchor.device
    check_provided(type(task), source)
    measures = {one.name: one for one in checked_measures(config.measures, model, task, source, config.splits)}
    if config.temperature:
        check_task(task)
    where: dict[str, Any] = {"commit": machine.git_commit(), "hardware": machine.hardware_name(device)} | vars(identity)
    where |= {"encoding": model.encoding.name, "task": source.task}
    work, precision = parts or WorkFolder(), chosen_precision(config.precision, device)
    searched: dict[tuple[object, ...], float | str] = {}
    fitted: dict[tuple[object, ...], Temperature] = {}
    rows: list[ResultRow] = []
    for one in plan_evaluation(source, model, config, identity.train_resolution):
        shown = MeasureInput(model, task, source, one.split, one.indices, one.view, precision, config.workers)
        best = _searched(shown, one, searched, work, advance)
        heats = config.temperature and one.split == SPLIT
        with tuned_at(model, best):
            knob = None if model.knob is None else model.knob.value
            counted = measure_split(
                replace(
                    shown, task=with_temperature(task, None if heats else fitted.get(one.way)),
                    source=source if one.shrunk is None else shrunk(source, one.shrunk),
                ),
                work, one.key("answers"), advance=advance,
                answers=wanted if answers is not None and one.keeps_answers else None,
                scores=keep is not None or heats, drawn=pictures is not None and not one.tuned,
            )  # fmt: skip
            beside = [row for name in one.measures for row in measures[name].rows(shown, work, one.key(name), advance)]
        if heats:
            fitted[one.way] = told_temperature(counted and counted.scores, task, work.ranks)
        if counted is None:
            continue
        measured: dict[str, Any] = where | one.fields | _seen(one, model, counted) | {"knob": knob}
        measured["tuning"] = tuple(
            search.record(best[search.kind], SPLIT, len(one.searched), task.tuned_by) for search in one.searches
        )
        made = rows_of(counted.metrics, measured)
        if answers is not None:
            said = ((index, *counted.said[index]) for index in one.indices if index in counted.said)
            answers += [answer_of((one.split, *one.shown), *each) for each in said]
        if keep is not None and counted.scores:
            keep(logits_name(measured), StoredLogits.of(counted.scores, task_record(task), measured))
        if made and pictures is not None and counted.sheet is not None:
            name = picture_name(pictures_in, made[0])
            pictures[name], made[0] = counted.sheet, replace(made[0], picture=name)
        rows += [*made, *(ResultRow(**vars(row), **measured) for row in beside)]
    return rows


def _searched(
    shown: MeasureInput,
    one: Measurement,
    known: dict[tuple[object, ...], float | str],
    work: WorkFolder,
    advance: Callable[[int], None] | None,
) -> dict[str, float | str]:
    """The best value of each search, by its kind: each at the best of those before it, once for all splits."""
    best: dict[str, float | str] = {}
    for search in one.searches:
        place = (search.kind, *one.shown)
        if place not in known:

            def make(search: Search = search) -> float | str:
                return tune(replace(shown, split=SPLIT, indices=one.searched, workers=0), search, advance, work.ranks)

            with tuned_at(shown.model, best):
                known[place] = work.ranks.broadcast(work.once(json.dumps([*place, one.frames]), make))
        best[search.kind] = known[place]
    return best


def _seen(one: Measurement, model: Model, counted: SplitResult) -> dict[str, Any]:
    """What rows say of what was shown, and how long it took."""
    side = one.view if one.shrunk is None else one.shrunk
    return {
        "grid": None if isinstance(side, View) else model.config.grid_of(side, one.frames),
        "patches": counted.tokens / counted.images if counted.images else math.nan,
        "seconds": counted.seconds,
        "ranks": counted.ranks,
    }


def planned_logits(source: Source, model: Model, config: EvaluateConfig, identity: RunInfo) -> list[str]:
    """The names of all files of logits that `evaluate` keeps."""
    plan = plan_evaluation(source, model, config, identity.train_resolution)
    return [logits_name(vars(identity) | one.fields) for one in plan]


def spread_indices(source: Source, split: str, count: int) -> Sequence[int]:
    """Indices of so many images of a split, spread over it where it has more: a folder's images are sorted by class."""
    length = source.length(split)
    if length is None or count >= length or source.is_synthetic:
        return range(count)
    return [number * length // count for number in range(count)]


def shrunk(source: Source, side: int) -> Source:
    """The same data set, whose images are shrunk to a square of `side` pixels after they were made at the size that is
    asked for; what is said of them stays at that size, so that answers are scored there."""

    def example(split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        made = source.example(split, index, image_size, seed=seed, epoch=epoch)
        return replace(made, image=apply_crop(made.image, whole_crop(size_of(made.image), (side, side)), "bicubic"))

    small = copy.copy(source)
    small.example = example
    return small
