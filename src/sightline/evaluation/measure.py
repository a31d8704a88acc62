"""Every metric of a model's task by resolution, as rows."""

from __future__ import annotations

import copy
import itertools
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
from sightline.data.stored import FileSource
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.evaluation.config import UNTUNED, EvaluateConfig, RunInfo
from sightline.evaluation.counted import Answers, SplitResult, measure_split
from sightline.evaluation.dense_predictions import answer_of
from sightline.evaluation.drawn import picture_name
from sightline.evaluation.features import FrozenFeatureMeasure, FrozenTrunk
from sightline.evaluation.logits import StoredLogits, logits_name, rescore, rows_of, task_record
from sightline.evaluation.measures.base import MeasureInput, check_measures, measure_class
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import frames_of, is_rendered
from sightline.evaluation.suites.base import EvalSet
from sightline.evaluation.temperature import SPLIT, check_task, fit_temperature_on_ranks
from sightline.evaluation.tune import Search, searches_of, tune, tuned_at, tuning_passes
from sightline.io.run_files import PICTURES
from sightline.metrics.tempered import Temperature, with_temperature
from sightline.models import Model, ViTConfig
from sightline.results.rows import SQUARE, ResultRow
from sightline.tasks.base import Task, check_provided, make_task
from sightline.tokens.patchify import check_channels, check_multiples


def check_sizes(model: Model, sides: Sequence[int]) -> None:
    """Refuse what the model cannot be shown, and sides in pixels of which it makes no grid, before anything is
    measured."""
    check_channels(model.config.channels)
    if model.config.fit == "exact":
        check_multiples("resolution {}", sides, model.config.patch_size)
    for side in sides:
        model.config.grid_of(side)


def default_image_count(source: Source) -> int | None:
    """How many images of a split are measured unless it is said: 2000 of a drawn one, all of one that was read."""
    return 2000 if source.is_synthetic else None


def data_sets(source: Source, data: str, config: EvaluateConfig, train_resolution: int) -> list[EvalSet]:
    """The splits of a data set that are measured, in order: `heldout_fonts` at the training resolution alone, `minival`
    first where a temperature is fitted on it.

    Args:
        data: what it is called.

    Raises:
        InputError: there is no such split, or no such view of it.
    """
    for split in config.splits:
        source.check(split)
        for view in config.views:
            if view.kind == "native" and is_rendered(source, split):
                own = f"{source.name} has images of no size of their own"
                raise InputError(f"resolution {view.name}: {own} (expected: sides in pixels, or tokens:PATCHES)")
    for option, asked in (("tune", config.knobs != "default"), ("temperature", config.temperature)):
        if asked and SPLIT not in source.splits:
            said = f"{option}: data {data or source.name} has no split {SPLIT} (splits: {', '.join(source.splits)})"
            held = isinstance(source, FileSource) and "train" in source.splits and bool(data)
            raise InputError(f"{said}{f'; a run of --data {data},minival=0.1 has one' * held}")
    if config.knobs != "default" and all(split in UNTUNED for split in config.splits):
        others = ", ".join(split for split in source.splits if split not in UNTUNED) or "none"
        raise InputError(
            f"tune: is for no split of {', '.join(config.splits)}: minival is what is searched on "
            f"(splits that are measured with what was found: {others})"
        )
    views = {split: (train_resolution,) if split == "heldout_fonts" else config.resolutions for split in config.splits}
    if config.temperature:
        every = tuple(dict.fromkeys(itertools.chain(*views.values())))
        views = {SPLIT: every, **{split: shown for split, shown in views.items() if split != SPLIT}}
    mine = {split: split in config.splits for split in views}
    fewer = config.temperature_images
    return [
        EvalSet(
            data, source, split, views=shown, images=None if mine[split] else fewer, asked=mine[split],
            keep_predictions=mine[split],
        )
        for split, shown in views.items()
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Measurement:
    """An evaluation set, shown in one way.

    Attributes:
        indices: of its images; frames: of each clip, None of images.
        tuned: at what the searches find; shrunk: the side that images are shrunk to first, in pixels.
        searches: what is searched on `searched`, images of `minival`, before.
        measures: names of what is measured beside the answers.
        keep_predictions: what is said of each image is kept of this one.
    """

    part: EvalSet
    view: int | View
    indices: Sequence[int]
    frames: int | None = None
    tuned: bool = False
    shrunk: int | None = None
    searches: tuple[Search, ...] = ()
    searched: Sequence[int] = ()
    measures: tuple[str, ...] = ()
    keep_predictions: bool = False

    @property
    def shown(self) -> tuple[str, int | None]:
        """The name of the view and the side in pixels, as rows have them."""
        return (self.view.name, None) if isinstance(self.view, View) else (SQUARE, self.view)

    @property
    def fields(self) -> dict[str, Any]:
        """What its rows say of it, but for what is as usual."""
        view, resolution = self.shown
        some = {"frames": self.frames, "preparation": self.part.preparation}
        return {
            "data": self.part.data, "split": self.part.split, "view": view, "resolution": resolution,
            "tuned": self.tuned, "shrunk": self.shrunk, **{name: value for name, value in some.items() if value},
        }  # fmt: skip

    def key(self, *what: object, **changes: object) -> str:
        """Of an item of work on it, or on the same with some `fields` changed."""
        return json.dumps([*what, self.part.content, *(self.fields | changes).items()])


def plan_evaluation(
    source: Source | Sequence[EvalSet], model: Model, config: EvaluateConfig, train_resolution: int
) -> list[Measurement]:
    """Every measurement in order; of a set and view first as the encoding stands, then tuned, then of shrunk images.
    Nothing is searched for, shrunk or measured beside the answers of a suite, which has no other splits.

    Args:
        source: a data set, or evaluation sets.

    Raises:
        InputError: as `data_sets`.
    """
    plan = dict[str, Measurement]()
    sets = source if isinstance(source, Sequence) else data_sets(source, "", config, train_resolution)
    for part, view in ((one, view) for one in sets for view in one.views):
        length, most = part.source.length(part.split), part.images
        count = config.count(length, view) if most is None else most if length is None else min(most, length)
        ways: list[tuple[bool, int | None]] = [(False, None)]
        searches, searched = tuple[Search, ...](), range(0)
        if not part.preparation and config.tunes(part.split, model.encoding):
            most = min(config.tune_images, part.source.length(SPLIT) or config.tune_images)
            searched = spread_indices(part.source, SPLIT, most)
            searches = tuple(searches_of(model.encoding, config.tuned, view, model.config.patch_size))
            ways = [(True, None)] if config.knobs == "tuned" else [(False, None), (True, None)]
        if not part.preparation and config.shrink and isinstance(view, int) and view > train_resolution:
            ways.append((False, train_resolution))
        indices, frames = spread_indices(part.source, part.split, count), frames_of(part.source, model)
        for number, (tuned, small) in enumerate(ways):
            one = Measurement(
                part, view, indices, frames, tuned, small, searches if tuned else (), searched,
                measures_of(part, config) if small is None else (), part.keep_predictions and number == 0,
            )  # fmt: skip
            plan.setdefault(one.key(), one)
    return list(plan.values())


def measures_of(part: EvalSet, config: EvaluateConfig) -> tuple[str, ...]:
    """Names of what is measured of a set beside its answers."""
    return config.measures if part.asked and not part.preparation else ()


def count_images(
    source: Source | Sequence[EvalSet], model: Model, config: EvaluateConfig, train_resolution: int
) -> int:
    """How many images `evaluate` will pass through the model: the length of its progress bar."""
    plan = plan_evaluation(source, model, config, train_resolution)
    # What was found for the first split holds for all.
    searched = {
        one.key(split="", tuned=True): tuning_passes(one.searches, len(one.searched))
        for one in reversed(plan)
        if one.searches
    }
    beside = (
        measure_class(name).passes(one.part.source, one.part.split, len(one.indices))
        for one in plan
        for name in one.measures
    )
    return sum(len(one.indices) for one in plan) + sum(searched.values()) + sum(beside)


def splits_read(source: Source, config: EvaluateConfig) -> tuple[str, ...]:
    """The splits whose images `evaluate` looks at: those measured, and those that anything is chosen by or learned
    from."""
    beside = [
        name for one in config.measures for split in config.splits for name in measure_class(one).reads(source, split)
    ]
    chosen = [SPLIT] if config.knobs != "default" or config.temperature else []
    return tuple(dict.fromkeys([*config.splits, *chosen, *beside]))


def check_sets(model: Model, sets: Sequence[EvalSet], config: EvaluateConfig) -> list[Task]:
    """The task on each evaluation set, after it was made sure that it can be measured.

    Raises:
        InputError: a class, a size, a measure or the temperature does not fit the model and the set.
    """
    check_sizes(model, sorted({view for part in sets for view in part.views if isinstance(view, int)}))
    tasks = list[Task]()
    for part in sets:
        named = model.config.replace(class_names=None) if part.by_place else model.config
        asked = measures_of(part, config)
        try:
            task = _own_task(named, part, config)
        except InputError as error:
            # What is learned from frozen features needs no head that fits.
            frozen = asked and all(issubclass(measure_class(name), FrozenFeatureMeasure) for name in asked)
            if not frozen or config.knobs != "default" or config.temperature:
                raise
            task = FrozenTrunk(named, str(error))
        check_measures(asked, model, task, part.source, [part.split])
        if config.temperature and not part.preparation:
            check_task(task)
        tasks.append(task)
    return tasks


def _own_task(model: ViTConfig, part: EvalSet, config: EvaluateConfig) -> Task:
    """The model's task on a set; raises InputError where it is not for it."""
    task = make_task(model.task, model, config.task_options).bind(part.source, part.data)
    zero_shot, labelled = "zero_shot" in measures_of(part, config), "label" in part.source.provides
    # Classes are enough for it, where nothing is tuned.
    if not (zero_shot and labelled and config.knobs == "default"):
        hint = " (or --measures zero_shot, without --tune)" if task.name == "contrastive" and labelled else ""
        check_provided(type(task), part.source, hint)
    return task


def evaluate(
    model: Model,
    source: Source | Sequence[EvalSet],
    config: EvaluateConfig,
    identity: RunInfo,
    *,
    advance: Callable[[int], None] | None = None,
    answers: list[Any] | None = None,
    wanted: Answers = "prediction_records",
    pictures: dict[str, Image] | None = None,
    parts: WorkFolder | None = None,
    keep: Callable[[str, StoredLogits], None] | None = None,
) -> list[ResultRow]:
    """Rows of every metric of the model's task at each resolution, at the knob's default and tuned.

    Of several ranks each must call it, and the first alone has rows.

    Args:
        source: the data set that `identity` names, or evaluation sets.
        advance: called with the number of images of each batch.
        answers: what was said of each image is added to it, by the model as it stands where that is measured.
        wanted: which method of the task says it, of what `answer_of` makes.
        pictures: what rows name is added to it (`write_pictures`), where the task draws anything.
        parts: what is finished of it (`work_folder`), and the ranks that measure together; none of one process.
        keep: called on the first rank with the logits of each measurement of a classifier, and the name of their file.

    Raises:
        InputError: a split, a class or a resolution does not fit the model.
    """
    if not isinstance(source, Sequence):
        source = data_sets(source, identity.data, config, identity.train_resolution)
    tasks = {id(part): task for part, task in zip(source, check_sets(model, source, config), strict=True)}
    device = model.anchor.device
    where: dict[str, Any] = {"commit": machine.git_commit(), "hardware": machine.hardware_name(device)} | vars(identity)
    work, precision = parts or WorkFolder(), chosen_precision(config.precision, device)
    searched: dict[str, float | str] = {}
    fitted: dict[str, Temperature] = {}
    rows: list[ResultRow] = []
    for one in plan_evaluation(source, model, config, identity.train_resolution):
        part, task = one.part, tasks[id(one.part)]
        shown = MeasureInput(model, task, part.source, part.split, one.indices, one.view, precision, config.workers)
        best, way = _searched(shown, one, searched, work, advance), one.key(split="")
        heats = config.temperature and not part.preparation and part.split == SPLIT
        with tuned_at(model, best):
            knob = None if model.knob is None else model.knob.value
            counted = measure_split(
                replace(
                    shown, task=with_temperature(task, None if heats else fitted.get(way)),
                    source=part.source if one.shrunk is None else shrunk(part.source, one.shrunk),
                ),
                work, one.key("answers"), advance=advance,
                answers=wanted if answers is not None and one.keep_predictions else None,
                scores=keep is not None or heats or bool(part.scorings),
                drawn=pictures is not None and part.keep_predictions and not one.tuned,
            )  # fmt: skip
            beside = [
                row for name in one.measures
                for row in measure_class(name)().rows(shown, work, one.key(name), advance)
            ]  # fmt: skip
        if heats:
            fitted[way] = fit_temperature_on_ranks(counted and counted.scores, task, work.ranks)
        if counted is None:
            continue
        measured: dict[str, Any] = where | one.fields | _shown_fields(one, shown, counted, knob, best)
        made = rows_of(counted.metrics, measured)
        if answers is not None:
            said = ((index, *counted.said[index]) for index in one.indices if index in counted.said)
            answers += [answer_of((part.split, *one.shown), *each) for each in said]
        if counted.scores and (keep is not None or part.scorings):
            stored = StoredLogits.of(counted.scores, task_record(task), measured, part.scorings)
            made = rescore(stored) if part.scorings else made
            if keep is not None:
                keep(logits_name(measured), stored)
        if made and pictures is not None and counted.sheet is not None:
            name = picture_name(PICTURES, made[0])
            pictures[name], made[0] = counted.sheet, replace(made[0], picture=name)
        rows += [*made, *(ResultRow(**vars(row), **measured) for row in beside)]
    return rows


def _searched(
    shown: MeasureInput,
    one: Measurement,
    known: dict[str, float | str],
    work: WorkFolder,
    advance: Callable[[int], None] | None,
) -> dict[str, float | str]:
    """The best value of each search, by its kind: each at the best of those before it, once for all splits."""
    best: dict[str, float | str] = {}
    for search in one.searches:
        key = one.key(search.kind, split=SPLIT)
        if key not in known:

            def make(search: Search = search) -> float | str:
                return tune(replace(shown, split=SPLIT, indices=one.searched, workers=0), search, advance, work.ranks)

            with tuned_at(shown.model, best):
                known[key] = work.ranks.broadcast(work.once(key, make))
        best[search.kind] = known[key]
    return best


def _shown_fields(
    one: Measurement, shown: MeasureInput, counted: SplitResult, knob: float | None, best: dict[str, float | str]
) -> dict[str, Any]:
    """What rows say of what was shown to the model, how the model was tuned, and how long it took."""
    side, model, task = one.view if one.shrunk is None else one.shrunk, shown.model, shown.task
    return {
        "grid": None if isinstance(side, View) else model.config.grid_of(side, one.frames),
        "patches": counted.tokens / counted.images if counted.images else math.nan,
        "seconds": counted.seconds,
        "ranks": counted.ranks,
        "knob": knob,
        "encoding": model.encoding.name,
        "task": one.part.source.task,
        "tuning": tuple(
            search.record(best[search.kind], SPLIT, len(one.searched), task.tuned_by) for search in one.searches
        ),
    }


def logits_names(
    source: Source | Sequence[EvalSet], model: Model, config: EvaluateConfig, identity: RunInfo
) -> list[str]:
    """The names of all files of logits that `evaluate` keeps."""
    if not isinstance(source, Sequence):
        source = data_sets(source, identity.data, config, identity.train_resolution)
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
