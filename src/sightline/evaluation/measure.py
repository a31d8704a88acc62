"""Every metric of a model's task by resolution, as rows."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from PIL.Image import Image
from pydantic import Field, InstanceOf

from sightline.attention.cpu import chosen_precision
from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.distributed import machine
from sightline.encodings.base import PositionEncoding
from sightline.errors import InputError
from sightline.evaluation.counted import Answers, measure_split
from sightline.evaluation.drawn import picture_name
from sightline.evaluation.logits import StoredLogits, file_name, rows_of, task_record
from sightline.evaluation.measures.base import MeasureInput, checked_measures, measure_class
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import frames_of, is_rendered
from sightline.evaluation.result_files import answer_of
from sightline.evaluation.shrunk import shrunk
from sightline.evaluation.temperature import SPLIT, check_task, told_temperature
from sightline.evaluation.tune import KINDS, Kind, Search, searches_of, tune, tuned_at, tuning_passes
from sightline.io.config import Count, Precision, config_dataclass
from sightline.io.run_files import PICTURES
from sightline.metrics.tempered import Temperature, with_temperature
from sightline.models import Model
from sightline.results.rows import SQUARE, ResultRow
from sightline.tasks.base import check_provided, task_of
from sightline.tokens.patchify import check_channels, check_multiples

# What is searched on, what was trained on, and what is measured at the training size alone.
_UNTUNED = ("train", "minival", "heldout_fonts")


@config_dataclass(kw_only=False)
class EvaluateConfig:
    """What to measure.

    Attributes:
        resolutions: square sides in pixels, multiples of the patch, and views of images at their own aspect.
        splits: of the data set; `heldout_fonts` is measured at the training resolution alone.
        images: at most this many of a split; images_beyond: (side, images) takes fewer above a side.
        knobs: `default` measures with the model's encoding as it stands; `tuned` with what is best on `minival` at each
            resolution, where the encoding has anything to choose; `both` with each of these. tune_images: how many of
            it; tuned: what is chosen, the `knob`, the `rule` by which tables are resized, or both.
        temperature: measure `minival` in each of these ways too, before any other split, and fit on it the temperature
            of what is measured in the same way (`temperature.fit_temperature`); of a classifier. temperature_images:
            how many of it, unless it is one of `splits`.
        task_options: of the task, as how it looks at an image; those of its class unless given.
        shrink: measure at each square above the training size also the same images shrunk to that size.
        measures: names of what is measured of the model beside its answers (`evaluation/measures/`).
        precision: of the matrix products; `auto` is bfloat16 where it is faster; workers: processes that load batches.
    """

    resolutions: Annotated[tuple[Count | InstanceOf[View], ...], Field(min_length=1)]
    splits: tuple[str, ...] = ("test",)
    images: Count | None = None
    images_beyond: tuple[int, int] | None = None
    knobs: Literal["default", "tuned", "both"] = "default"
    tune_images: Count = 500
    tuned: tuple[Kind, ...] = KINDS
    temperature: bool = False
    temperature_images: Count = 1000
    task_options: dict[str, Any] = field(default_factory=dict)
    shrink: bool = True
    precision: Precision = "auto"
    workers: int = 0
    measures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        machine.check_workers(self.workers)
        for name in self.measures:
            measure_class(name)

    @property
    def sides(self) -> tuple[int, ...]:
        """Those of `resolutions` that are square sides."""
        return tuple(one for one in self.resolutions if not isinstance(one, View))

    @property
    def views(self) -> tuple[View, ...]:
        """The others."""
        return tuple(one for one in self.resolutions if isinstance(one, View))

    def count(self, length: int | None, resolution: int | View) -> int:
        """How many images of a split of `length` are measured at a resolution."""
        most = self.images
        if self.images_beyond is not None and isinstance(resolution, int) and resolution > self.images_beyond[0]:
            most = self.images_beyond[1]
        if length is None:
            if most is None:
                raise InputError("images: expected a number for an endless split")
            return most
        return length if most is None else min(most, length)

    def shrinks(self, resolution: int | View, train_resolution: int) -> bool:
        """Whether a resolution is measured with shrunk images too."""
        return self.shrink and isinstance(resolution, int) and resolution > train_resolution

    def tunings(
        self, split: str, resolution: int | View, encoding: PositionEncoding, train_resolution: int
    ) -> list[tuple[bool, int | None]]:
        """How a split is measured at a resolution, in order: whether the encoding is tuned, and the side that images
        are shrunk to."""
        tuned = [True] if self.tunes(split, encoding) else []
        usual = [] if tuned and self.knobs == "tuned" else [False]
        small = [(False, train_resolution)] if self.shrinks(resolution, train_resolution) else []
        return [*((one, None) for one in (*usual, *tuned)), *small]

    def tunes(self, split: str, encoding: PositionEncoding) -> bool:
        """Whether anything is searched for before a split is measured: never for what is searched on itself, but where
        its temperature is for splits that are tuned."""
        there = {"knob": encoding.knob, "rule": encoding.resize_rule}
        measured = split not in _UNTUNED or (
            split == SPLIT and self.temperature and any(one not in _UNTUNED for one in self.splits)
        )
        return self.knobs != "default" and measured and any(there[kind] is not None for kind in self.tuned)

    def searches(self, encoding: PositionEncoding, split: str, view: int | View, patch_size: int) -> list[Search]:
        """What is searched before a split is measured at a size or view."""
        return searches_of(encoding, self.tuned, view, patch_size) if self.tunes(split, encoding) else []


@dataclass(frozen=True)
class RunInfo:
    """What the rows of a run say of where it came from; `patch_size` where its model has others than its own."""

    run: str
    data: str
    train_resolution: int
    seed: int
    patch_size: int | None = None


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


def planned_images(source: Source, model: Model, config: EvaluateConfig, train_resolution: int) -> int:
    """How many images `evaluate` will pass through the model: the length of its progress bar."""
    total = 0
    for split, resolution in measurements(source, config, train_resolution):
        total += passes(source, model, config, split, resolution)
        if config.shrinks(resolution, train_resolution):
            total += count_of(source, config, split, resolution)
    return total


def passes(source: Source, model: Model, config: EvaluateConfig, split: str, resolution: int | View) -> int:
    """How many images one measurement passes through a model, the search for its knob and rule included."""
    count = each = count_of(source, config, split, resolution)
    if split in config.splits:
        each += sum(measure_class(name).passes(source, split, count) for name in config.measures)
    if not config.tunes(split, model.encoding):
        return each
    each *= 2 if config.knobs == "both" else 1
    order = (*((SPLIT,) if config.temperature else ()), *config.splits)
    if split != next(one for one in order if config.tunes(one, model.encoding)):
        # What was found for the first holds for all.
        return each
    searches = config.searches(model.encoding, split, resolution, model.config.patch_size)
    return tuning_passes(searches, _searched(source, config)) + each


def splits_read(source: Source, config: EvaluateConfig) -> tuple[str, ...]:
    """The splits whose images `evaluate` looks at: those measured, and those that anything is chosen by or learned
    from."""
    beside = [
        name for one in config.measures for split in config.splits for name in measure_class(one).reads(source, split)
    ]
    chosen = [SPLIT] if config.knobs != "default" or config.temperature else []
    return tuple(dict.fromkeys([*config.splits, *chosen, *beside]))


def count_of(source: Source, config: EvaluateConfig, split: str, resolution: int | View) -> int:
    """How many images of a split are measured at a resolution."""
    length = source.length(split)
    if split == SPLIT and split not in config.splits:
        return min(config.temperature_images, config.temperature_images if length is None else length)
    return config.count(length, resolution)


def _searched(source: Source, config: EvaluateConfig) -> int:
    """On how many images of `minival` is searched."""
    return min(config.tune_images, source.length("minival") or config.tune_images)


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
        if all(split in _UNTUNED for split in config.splits):
            others = ", ".join(split for split in source.splits if split not in _UNTUNED) or "none"
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
    parts: WorkFolder | None = None,
    keep: Callable[[str, StoredLogits], None] | None = None,
) -> list[ResultRow]:
    """Rows of every metric of the model's task at each resolution, at the knob's default and tuned.

    Of several ranks each must call it, and the first alone has rows.

    Args:
        advance: called with the number of images of each batch.
        answers: what was said of each image is added to it, by the model as it stands where that is measured.
        wanted: which method of the task says it, of what `answer_of` makes.
        pictures: what rows name is added to it (`write_pictures`), where the task draws anything.
        parts: what is finished of it (`kept_beside`), and the ranks that measure together; none of one process.
        keep: called on the first rank with the logits of each measurement of a classifier, and the name of their file.

    Raises:
        InputError: a split, a class or a resolution does not fit the model.
    """
    check_sizes(model, config)
    task, device = task_of(model, config.task_options).bind(source, identity.data), model.anchor.device
    check_provided(type(task), source)
    measures = checked_measures(config.measures, model, task, source, config.splits)
    if config.temperature:
        check_task(task)
    # By how images of minival were shown.
    fitted: dict[tuple[object, ...], Temperature] = {}
    where: dict[str, Any] = {"commit": machine.git_commit(), "hardware": machine.hardware_name(device)} | vars(identity)
    rows, parts = list[ResultRow](), parts or WorkFolder()
    frames, precision = frames_of(source, model), chosen_precision(config.precision, device)
    for split, view in measurements(source, config, identity.train_resolution):
        indices = spread_indices(source, split, count_of(source, config, split, view))
        own, side = None if model.knob is None else model.knob.value, identity.train_resolution
        place: dict[str, Any] = {"view": SQUARE, "resolution": view, "grid": None}
        if isinstance(view, View):
            place |= {"view": view.name, "resolution": None}
        else:
            place["grid"] = model.config.grid_of(view, frames)
        shown = (split, place["view"], place["resolution"])
        clips = () if frames is None else (frames,)  # beside what tells the work on images from others, as it is called
        best: dict[str, float | str] = {}
        tuning: list[dict[str, Any]] = []
        for search in config.searches(model.encoding, split, view, model.config.patch_size):
            searched = spread_indices(source, "minival", _searched(source, config))
            with tuned_at(model, best):
                found = parts.once(
                    json.dumps([search.kind, *shown[1:], *clips]),
                    functools.partial(
                        tune, model, task, source, searched, view, search, precision=precision, advance=advance,
                        ranks=parts.ranks,
                    ),
                )  # fmt: skip
            best[search.kind] = found
            tuning.append(search.record(found, "minival", len(searched), task.tuned_by))
        for number, (tuned, small) in enumerate(config.tunings(split, view, model.encoding, side)):
            chosen = best if tuned else {}
            knob = chosen.get("knob", own)
            if small is not None:
                place["grid"] = model.config.grid_of(small, frames)
            way = (*shown[1:], tuned, small)
            heats = config.temperature and split == SPLIT
            measuring = with_temperature(task, None if heats else fitted.get(way))
            with tuned_at(model, chosen):
                counted = measure_split(
                    model, measuring, source if small is None else shrunk(source, small), split, indices, view,
                    parts=parts, work=json.dumps([*shown, knob, tuned, small, *clips]), precision=precision,
                    workers=config.workers, advance=advance,
                    answers=wanted if answers is not None and number == 0 and split in config.splits else None,
                    scores=keep is not None or heats, drawn=pictures is not None and not tuned,
                )  # fmt: skip
                beside = []
                for one in measures if small is None and split in config.splits else ():
                    subject = MeasureInput(model, task, source, split, indices, view, precision, config.workers)
                    work = json.dumps([*shown, knob, tuned, one.name, *clips])
                    beside += one.rows(subject, parts, work, advance)
            if heats:
                fitted[way] = told_temperature(counted and counted.scores, task, parts.ranks)
            if counted is None:
                continue
            if answers is not None:
                answers += [answer_of(shown, one, *counted.said[one]) for one in indices if one in counted.said]
            place["patches"] = counted.tokens / counted.images if counted.images else math.nan
            measured = where | place | {
                "encoding": model.encoding.name, "task": source.task, "split": split, "knob": knob, "tuned": tuned,
                "seconds": counted.seconds, "shrunk": small, "ranks": counted.ranks,
                "tuning": tuple(tuning) if tuned else (), **({} if frames is None else {"frames": frames}),
            }  # fmt: skip
            made = rows_of(counted.metrics, measured)
            if keep is not None and counted.scores:
                stored = StoredLogits.of(counted.scores, task_record(task), measured)
                told = {"tuned": tuned, "small": small, "frames": frames, "patch_size": identity.patch_size}
                keep(logits_name(identity.data, split, view, **told), stored)
            if made and pictures is not None and counted.sheet is not None:
                name = picture_name(PICTURES, made[0])
                pictures[name], made[0] = counted.sheet, replace(made[0], picture=name)
            rows += [*made, *(ResultRow(**vars(one), **measured) for one in beside)]
    return rows


def logits_name(
    data: str, split: str, view: int | View, *, tuned: bool, small: int | None, frames: int | None = None,
    patch_size: int | None = None,
) -> str:  # fmt: skip
    """Of the file of a measurement's logits."""
    shown = view.name if isinstance(view, View) else f"{view} px"
    shown += "" if frames is None else f" {frames} frames"
    shown += "" if patch_size is None else f" in patches of {patch_size} px"
    return file_name(data, split, shown if small is None else f"{shown} shrunk to {small} px", tuned=tuned)


def logits_name_of(row: ResultRow) -> str:
    """Of the file of the logits that a row was computed from, where they were kept."""
    view = row.resolution or View.parse(row.view)
    assert view is not None
    told = {"small": row.shrunk, "frames": row.frames, "patch_size": row.patch_size}
    return logits_name(row.data, row.split, view, tuned=row.tuned, **told)


def planned_logits(source: Source, model: Model, config: EvaluateConfig, identity: RunInfo) -> list[str]:
    """The names of all files of logits that `evaluate` keeps."""
    side, names, frames = identity.train_resolution, [], frames_of(source, model)
    for split, view in measurements(source, config, side):
        for tuned, small in config.tunings(split, view, model.encoding, side):
            told = {"tuned": tuned, "small": small, "frames": frames, "patch_size": identity.patch_size}
            names.append(logits_name(identity.data, split, view, **told))
    return names


def spread_indices(source: Source, split: str, count: int) -> Sequence[int]:
    """Indices of so many images of a split, spread over it where it has more: a folder's images are sorted by class."""
    length = source.length(split)
    if length is None or count >= length or source.is_synthetic:
        return range(count)
    return [number * length // count for number in range(count)]
