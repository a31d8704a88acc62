"""A suite's parts, measured one after the other: logits are stored, and rows are what is measured of these."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sightline import __version__
from sightline.attention.cpu import chosen_precision
from sightline.data.labelled import ClassificationFiles
from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.distributed.ranks import Ranks
from sightline.errors import InputError
from sightline.evaluation.imagenet import numbers_of
from sightline.evaluation.logits import ENDING, StoredLogits, file_name, read_logits, rescore, write_logits
from sightline.evaluation.measure import (
    EvaluateConfig,
    RunInfo,
    check_sizes,
    default_image_count,
    evaluate,
    planned_images,
)
from sightline.evaluation.parts import kept_beside, weights_digest, work_of
from sightline.evaluation.preparations.base import preparation_class
from sightline.evaluation.suites.base import EvalSet
from sightline.io.atomic import write_out
from sightline.io.config import Precision
from sightline.models import Model
from sightline.results.rows import ResultRow, dump_rows, read_rows
from sightline.tasks.classification import Classification


@dataclass(frozen=True)
class SuiteConfig:
    """How a suite is measured.

    Attributes:
        suite: as it was asked for; resolutions: as `EvaluateConfig`; preparation: its name.
        limit: at most this many images of each part, spread over classes.
        task_options, precision, workers: as `EvaluateConfig`.
    """

    suite: str
    resolutions: tuple[int | View, ...]
    preparation: str = "model"
    limit: int | None = None
    task_options: Mapping[str, Any] | None = None
    precision: Precision = "auto"
    workers: int = 0

    def of(self, part: EvalSet, view: int | View, patch_size: int) -> EvaluateConfig:
        """One measurement of a part."""
        shown = preparation_class(self.preparation).view(view, patch_size)
        images = default_image_count(part.source) if self.limit is None else self.limit
        return EvaluateConfig(
            (shown,), (part.split,), images=images, shrink=False, task_options=dict(self.task_options or {}),
            precision=self.precision, workers=self.workers,
        )  # fmt: skip


@dataclass(frozen=True)
class Measurement:
    """A part at one size."""

    part: EvalSet
    config: EvaluateConfig

    @property
    def view(self) -> int | View:
        return self.config.resolutions[0]


def map_classes(model: Model, parts: Sequence[EvalSet], suite: str) -> list[EvalSet]:
    """The parts in the model's own numbers of classes, after it was made sure that its head is of these.

    A model that does not know the names of ImageNet's classes numbers them as ImageNet does.

    Raises:
        InputError: the head has other classes, or another number of them; says both.
    """
    made = []
    known, count = model.config.class_names, model.config.num_classes
    for part in parts:
        classes = len(part.source.classes)
        numbers = numbers_of(known, count, suite) if part.imagenet else None
        if not part.imagenet and model.config.has_classifier and known is None and classes and count != classes:
            raise InputError(f"suite {suite}: has {classes:,} classes, the model's head {count:,}")
        scorings = part.scorings if numbers is None else tuple(one.renumbered(numbers) for one in part.scorings)
        made.append(replace(part, scorings=scorings))
    if any(part.imagenet for part in parts) and known is not None and set(known) != set(parts[0].source.classes):
        # Words for the classes that `numbers_of` took for ImageNet's: by their places.
        model.config = model.config.replace(class_names=None)
    return made


def planned(model: Model, parts: Sequence[EvalSet], config: SuiteConfig) -> list[Measurement]:
    """Every measurement of a suite, part by part; images are shown as the preparation says.

    Raises:
        InputError: the preparation or a resolution does not fit the model or the data.
    """
    kind = preparation_class(config.preparation)
    patch, side = model.config.patch_size, side_of(model)
    found = []
    for part in parts:
        shown = part if config.limit is None else part.limited(config.limit)
        shown = shown.shown_by(kind.of(model.config, careful=part.careful))
        for view in config.resolutions:
            one = Measurement(shown, config.of(shown, view, patch))
            check_sizes(model, one.config)
            planned_images(shown.source, model, one.config, side)
            found.append(one)
    return found


def side_of(model: Model) -> int:
    """Of the images that a model was trained on last, in pixels."""
    side = model.config.image_size
    return side if isinstance(side, int) else min(side)


def measure(
    model: Model,
    one: Measurement,
    config: SuiteConfig,
    identity: RunInfo,
    folder: Path,
    ranks: Ranks,
    *,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
) -> list[ResultRow]:
    """One measurement: its logits in a file of the folder (of what gives no scores of classes, its rows), its rows on
    the first rank; each rank must call it.

    What a file of these weights and options is there of is not measured again, and what was stopped goes on.

    Args:
        identity: of the model, with the part's data; folder: of the logits.
        overwrite: replace a file of other weights or options.
        advance: called with the number of images of each batch.

    Raises:
        InputError: such a file is there; or as `evaluate`.
    """
    part, name, device = one.part, file_of(one, config, identity.patch_size), model.anchor.device
    classifier, stem = gives_scores(model), name.removesuffix(ENDING)
    with kept_beside(folder / name, model, lambda: _about(one, config, identity, device), ranks) as parts:
        # Of what gives no scores the rows themselves are kept, by the name of what made them.
        rows_file = folder / f"{stem}.{parts.identity}.jsonl"
        others = [folder / name, *folder.glob(f"{glob.escape(stem)}.*.jsonl")] if ranks.is_main else []
        there = ranks.is_main and (rows_file.exists() or _is_of(folder / name, parts.identity, overwrite=overwrite))
        for other in () if there or overwrite else others:
            if other.exists():
                raise InputError(f"{other}: exists already, of other weights or options; --overwrite replaces it")
        if ranks.broadcast(there):
            if advance is not None:
                advance(planned_images(part.source, model, one.config, identity.train_resolution))
            if not ranks.is_main:
                return []
            # What a kill left between the last two writes.
            parts.discard()
            return rescore(read_logits(folder / name)) if classifier else read_rows(rows_file)
        kept: list[StoredLogits] = []
        keep = (lambda _, stored: kept.append(stored)) if classifier else None
        rows = evaluate(model, part.source, one.config, identity, advance=advance, parts=parts, keep=keep)
        if not ranks.is_main:
            return []
        rows = [replace(row, preparation=config.preparation) for row in rows]
        for stored in kept:
            made = replace(
                stored,
                work=parts.identity,
                measured={**stored.measured, "preparation": config.preparation, "classes": None},
                scorings=[scoring.at(stored.indices.tolist()) for scoring in part.scorings],
            )
            write_logits(folder, name, made)
            rows = rescore(made)
        if not classifier:
            for file in others:
                file.unlink(missing_ok=True)
            write_out(rows_file, dump_rows(rows).encode())
        parts.discard()
        return rows


def split_digest(source: Source, split: str) -> str:
    """Tells the images of a split, some of which may have been chosen, from others, by the headers of these alone."""
    if not isinstance(source, ClassificationFiles):
        return source.fingerprint(split).digest
    listing, rows = source.listing, source.rows_of(split)
    listing.read_headers(rows)
    seen = hashlib.sha256(json.dumps(source.classes).encode())
    for row in rows:
        seen.update(f"{listing.names[row]}\0{listing.stats[row, 0]}\0".encode("utf-8", "surrogatepass"))
        seen.update(listing.samples[row].tobytes())
    return seen.hexdigest()[:32]


def _about(one: Measurement, config: SuiteConfig, identity: RunInfo, device: torch.device) -> dict[str, Any]:
    """All that decides a measurement's values beside the model."""
    part = one.part
    right = json.dumps([scoring.record() for scoring in part.scorings])
    precision = chosen_precision(config.precision, device)
    return {
        "command": f"suite {__version__}",
        "suite": part.data,
        "split": part.split,
        "config": repr(replace(one.config, workers=0, precision=precision)),
        "preparation": repr(part.source.transform),
        "scorings": hashlib.sha256(right.encode()).hexdigest(),
        "identity": vars(identity),
        "device": device.type,
        "data": split_digest(part.source, part.split),
    }


def refuse_others(
    model: Model, todo: Sequence[Measurement], config: SuiteConfig, identity: RunInfo, folder: Path
) -> None:
    """Refuse a folder in which logits of one of the measurements are of other weights or options: before the first.

    Raises:
        InputError: names the file.
    """
    weights = ""
    for one in todo:
        file, named = folder / file_of(one, config, identity.patch_size), replace(identity, data=one.part.data)
        if not file.exists():
            continue
        weights = weights or weights_digest(model)
        if not _is_of(file, work_of(weights, _about(one, config, named, model.anchor.device)), overwrite=False):
            raise InputError(f"{file}: exists already, of other weights or options; --overwrite replaces it")


def _is_of(file: Path, work: str, *, overwrite: bool) -> bool:
    """Whether a file of logits is there, and of this work; one that is damaged is refused unless it is replaced."""
    try:
        return file.exists() and read_logits(file, header=True).work == work
    except InputError:
        if not overwrite:
            raise
        return False


def gives_scores(model: Model) -> bool:
    """Whether a model gives scores of classes, which can be stored."""
    return model.config.task == Classification.name


def file_of(one: Measurement, config: SuiteConfig, patch_size: int | None = None) -> str:
    """The name of a measurement's file of logits, of a model in patches of other sizes than its own one each."""
    shown = one.view.name if isinstance(one.view, View) else f"{one.view} px"
    shown += "" if patch_size is None else f" in patches of {patch_size} px"
    name = file_name(one.part.data, one.part.split, f"{shown} {config.preparation}", tuned=False)
    return f"{one.part.data.partition(':')[0]}_{name}"
