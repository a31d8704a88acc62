"""A suite, measured part by part: logits are stored, and rows are what is measured of these."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sightline import __version__
from sightline.attention.cpu import chosen_precision
from sightline.data.labelled import ClassificationFiles
from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.distributed.ranks import Ranks
from sightline.errors import InputError
from sightline.evaluation.config import EvaluateConfig, RunInfo
from sightline.evaluation.imagenet import numbers_of
from sightline.evaluation.logits import ENDING, StoredLogits, file_name, read_logits, rescore, write_logits
from sightline.evaluation.measure import check_sizes, default_image_count, evaluate, planned_images
from sightline.evaluation.parts import WorkFolder, weights_digest, work_of
from sightline.evaluation.preparations.base import preparation_class
from sightline.evaluation.suites.base import EvalSet
from sightline.io.atomic import write_out
from sightline.models import Model
from sightline.results.rows import ResultRow, dump_rows, read_rows
from sightline.tasks.classification import Classification


@dataclass(frozen=True)
class SuiteMeasurement:
    """A part of a suite at one size: the images as they are shown, what is measured of them, and the name of the
    preparation."""

    part: EvalSet
    config: EvaluateConfig
    preparation: str

    @property
    def view(self) -> int | View:
        return self.config.resolutions[0]

    def file_name(self, patch_size: int | None = None) -> str:
        """Of its logits; of a model in patches of other sizes than its own one each."""
        shown = self.view.name if isinstance(self.view, View) else f"{self.view} px"
        shown += "" if patch_size is None else f" in patches of {patch_size} px"
        name = file_name(self.part.data, self.part.split, f"{shown} {self.preparation}", tuned=False)
        return f"{self.part.data.partition(':')[0]}_{name}"


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


def planned(
    model: Model, parts: Sequence[EvalSet], config: EvaluateConfig, preparation: str, train_resolution: int
) -> list[SuiteMeasurement]:
    """Every measurement of a suite, part by part; images are shown as the preparation says.

    Args:
        config: of any part; at most `images` of each are measured, spread over classes.

    Raises:
        InputError: the preparation or a resolution does not fit the model or the data.
    """
    kind, found = preparation_class(preparation), []
    for part in parts:
        shown = part if config.images is None else part.limited(config.images)
        shown = shown.shown_by(kind.of(model.config, careful=part.careful))
        images = config.images or default_image_count(shown.source)
        for view in config.resolutions:
            view = kind.view(view, model.config.patch_size)
            asked = replace(config, resolutions=(view,), splits=(part.split,), images=images, shrink=False)
            check_sizes(model, asked)
            planned_images(shown.source, model, asked, train_resolution)
            found.append(SuiteMeasurement(shown, asked, preparation))
    return found


def measure_suite(
    model: Model,
    todo: Sequence[SuiteMeasurement],
    identity: RunInfo,
    folder: Path,
    ranks: Ranks,
    *,
    overwrite: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Iterator[list[ResultRow]]:
    """The rows of one measurement after the other, on the first rank; each must call it. Its logits (of what gives no
    scores of classes its rows) are a file of the folder: what it has of these weights and options is not measured
    again.

    Args:
        identity: of the model.
        folder: of the logits.
        overwrite: replace files of other weights or options.
        advance: called with the number of images of each batch.

    Raises:
        InputError: such a file is there, nothing was measured; or as `evaluate`.
    """
    classifier = gives_scores(model)
    files = [(folder, "", False)] * len(todo)
    if ranks.is_main:
        files = _files(model, todo, identity, folder, overwrite=overwrite)
    for one, (file, work, there) in zip(todo, files, strict=True):
        if ranks.broadcast(there):
            if advance is not None:
                advance(planned_images(one.part.source, model, one.config, identity.train_resolution))
            rows = rescore(read_logits(file)) if classifier and ranks.is_main else []
            yield rows if classifier or not ranks.is_main else read_rows(file)
            continue
        kept: dict[str, StoredLogits] = {}
        keep = kept.__setitem__ if classifier else None
        named, parts = replace(identity, data=one.part.data), WorkFolder(ranks)
        rows = evaluate(model, one.part.source, one.config, named, advance=advance, parts=parts, keep=keep)
        rows = [replace(row, preparation=one.preparation) for row in rows]
        for stored in kept.values():
            measured = {**stored.measured, "preparation": one.preparation, "classes": None}
            scorings = [scoring.at(stored.indices.tolist()) for scoring in one.part.scorings]
            made = replace(stored, work=work, measured=measured, scorings=scorings)
            write_logits(folder, file.name, made)
            rows = rescore(made)
        if ranks.is_main and not classifier:
            for other in _rows_beside(folder / one.file_name(identity.patch_size)):
                other.unlink()
            write_out(file, dump_rows(rows))
        yield rows


def gives_scores(model: Model) -> bool:
    """Whether a model gives scores of classes, which can be stored."""
    return model.config.task == Classification.name


def _files(
    model: Model, todo: Sequence[SuiteMeasurement], identity: RunInfo, folder: Path, *, overwrite: bool
) -> list[tuple[Path, str, bool]]:
    """Of each measurement the file that keeps it, what tells its work from any other, and whether it is there."""
    weights, device, found = weights_digest(model), model.anchor.device, list[tuple[Path, str, bool]]()
    digests: dict[tuple[int, str], str] = {}
    for one in todo:
        place, part = folder / one.file_name(identity.patch_size), one.part
        images = id(part.source), part.split
        digests[images] = digests.get(images) or split_digest(part.source, part.split)
        precision = chosen_precision(one.config.precision, device)
        about = {
            "version": __version__, "data": [part.data, part.split, digests[images], repr(part.source.transform)],
            "config": repr(replace(one.config, workers=0, precision=precision)), "preparation": one.preparation,
            "scorings": [scoring.record() for scoring in part.scorings], "identity": vars(identity),
            "device": device.type,
        }  # fmt: skip
        work = work_of(weights, about)
        # Of what gives no scores the rows themselves are kept, by the name of what made them.
        file = place if gives_scores(model) else place.with_name(f"{place.stem}.{work}.jsonl")
        there = _is_of(file, work, overwrite=overwrite)
        for other in (place, *_rows_beside(place)):
            if other.exists() and not there and not overwrite:
                raise InputError(f"{other}: exists already, of other weights or options; --overwrite replaces it")
        found.append((file, work, there))
    return found


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


def _rows_beside(place: Path) -> list[Path]:
    """The rows that are kept in the place of a file of logits."""
    return list(place.parent.glob(f"{glob.escape(place.stem)}.*.jsonl"))


def _is_of(file: Path, work: str, *, overwrite: bool) -> bool:
    """Whether a file is there, and of this work; one that is damaged is refused unless it is replaced."""
    try:
        return file.exists() and (file.suffix != ENDING or read_logits(file, header=True).work == work)
    except InputError:
        if not overwrite:
            raise
        return False
