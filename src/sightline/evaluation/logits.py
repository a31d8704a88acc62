"""What a classifier gave for each image of a measurement, in a file: any measure is computed again with no model.

A file is numpy's `.npz`: `logits` (float32 [images, classes]), `labels` (the model's number of the true class) and
`indices` (in the split), both int64 [images], and `about`, the rest as JSON in UTF-8; zip keeps a checksum of each.
Nothing in it is a pickle. Where one pass is scored in several ways (`scoring.py`), `about` holds these.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline.data.batch import Batch
from sightline.errors import InputError
from sightline.evaluation.scoring import Scoring
from sightline.io.atomic import write_out
from sightline.io.read import check_file, parse_json, similar_file_hint
from sightline.io.run_files import LOGITS
from sightline.metrics.base import Metric, metrics_of
from sightline.metrics.tempered import Temperature, with_temperature
from sightline.models import ViTConfig
from sightline.results.rows import FITTED, FRACTION, INFERENCE, MetricValue, ResultRow
from sightline.tasks.base import Task, make_task
from sightline.tasks.classification import Classification
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

ENDING = ".npz"
TOGETHER = 512
"""Images that are looked at together: of a thousand classes as much as a processor keeps near."""
_FORMAT = 2
# What may differ where a measurement is made again.
_OF_ONE_TIME = ("seconds", "commit", "hardware", "ranks", "weights")
_TEXTS = ("names", "slices", "task", "measured", "work")
_WHAT_FAILS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, LookupError, ValueError, TypeError, InputError)


@dataclass(frozen=True, eq=False)
class StoredLogits:
    """One measurement of a classifier.

    Attributes:
        logits: float32 [images, classes]; labels, indices: int64 [images]; names, slices: of each image, as `Batch`.
        task: what makes its `Classification` again: the link of scores, its options, the names of classes and the
            groups; `metrics` names those that are measured, where these are not all.
        measured: what all its rows say, fields of `ResultRow`.
        work: tells the weights and all that was asked from any other.
        scorings: how these are scored; by their labels among all classes where there is none.
    """

    logits: np.ndarray
    labels: np.ndarray
    indices: np.ndarray
    names: Sequence[str]
    slices: Sequence[Mapping[str, str | float]]
    task: Mapping[str, Any]
    measured: Mapping[str, Any]
    work: str = ""
    scorings: Sequence[Scoring] = ()

    @classmethod
    def of(
        cls,
        parts: Sequence[Mapping[str, Any]],
        task: Mapping[str, Any],
        measured: Mapping[str, Any],
        scorings: Sequence[Scoring] = (),
    ) -> StoredLogits:
        """From what is kept of each batch, as `SplitResult.scores`; scorings are by the images' indices."""
        logits, labels, indices = (
            np.concatenate([part[name] for part in parts]) for name in ("logits", "labels", "indices")
        )
        names, slices = (list(itertools.chain(*(part[name] for part in parts))) for name in ("names", "slices"))
        scored = [one.at(indices.tolist()) for one in scorings]
        return cls(logits, labels, indices, names, slices, task, measured, scorings=scored)

    def scored(self) -> list[StoredLogits]:
        """The same by each of its scorings, as one that has none: what measures logits measures these."""
        return [self._by(one) for one in self.scorings] or [self]

    def _by(self, scoring: Scoring) -> StoredLogits:
        kept, logits, labels = scoring.apply(self.logits, self.labels)
        task, chosen = dict(self.task), scoring.classes
        if chosen is not None:
            place = {number: new for new, number in enumerate(chosen)}
            inside = {name: [place[one] for one in some if one in place] for name, some in task["groups"].items()}
            task |= {"classes": [task["classes"][one] for one in chosen], "groups": inside}
        if scoring.groups is not None:
            task |= {"classes": list(scoring.groups), "groups": {}, "score_link": "softmax"}
        task |= {"metrics": list(scoring.metrics)} if scoring.metrics else {}
        measured = {**self.measured, "data": scoring.data, "classes": logits.shape[1]}
        places: list[int] = kept.tolist()
        names, slices = [self.names[one] for one in places], [self.slices[one] for one in places]
        return StoredLogits(logits, labels, self.indices[kept], names, slices, task, measured, self.work)


def logits_name(measured: Mapping[str, Any]) -> str:
    """Of the file of a measurement's logits, by what its rows say: one name for each of what rows tell apart."""
    side, frames, patch_size, small = (measured.get(name) for name in ("resolution", "frames", "patch_size", "shrunk"))
    shown = measured["view"] if side is None else f"{side} px"
    shown += "" if frames is None else f" {frames} frames"
    shown += "" if patch_size is None else f" in patches of {patch_size} px"
    shown += "" if small is None else f" shrunk to {small} px"
    preparation = measured.get("preparation", "")
    shown += f" {preparation}" if preparation else ""
    parts = [measured["data"], measured["split"], shown, "tuned" if measured["tuned"] else ""]
    # A suite has several data sets.
    named = [parts[0].partition(":")[0], *parts[1:]] if preparation else parts[1:]
    told = "_".join(filter(None, (re.sub(r"[^0-9A-Za-z.,-]+", "_", part).strip("_.") for part in named)))
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{told[-80:]}_{digest}{ENDING}"


def task_record(task: Task) -> dict[str, Any]:
    """What `task` of `StoredLogits` is of a classifier on its data.

    Raises:
        InputError: it is no classifier, whose answers are more than scores of classes.
    """
    if not isinstance(task, Classification):
        raise InputError(f"--logits: task {task.name} gives no scores of classes (expected task classification)")
    return {
        "score_link": task.config.score_link,
        "options": asdict(task.options),
        "classes": list(task.names),
        "groups": {name: list(members) for name, members in task.groups.items()},
    }


def task_from(record: Mapping[str, Any]) -> Task:
    """The classifier's task whose `task_record` this is.

    Raises:
        InputError: an option is not known.
    """
    config = ViTConfig(num_classes=len(record["classes"]), score_link=record["score_link"])
    task: Any = make_task(Classification.name, config, record["options"])
    task.names, task.groups = list(record["classes"]), dict(record["groups"])
    return task


def write_logits(folder: Path, name: str, stored: StoredLogits) -> None:
    """Write a measurement whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    scorings = [one.record() for one in stored.scorings]
    about = {"format": _FORMAT, "scorings": scorings, **{key: getattr(stored, key) for key in _TEXTS}}
    if not any(stored.slices):
        about["slices"] = []
    text = np.frombuffer(json.dumps(about, allow_nan=False).encode(), np.uint8)
    content = io.BytesIO()
    np.savez_compressed(content, about=text, labels=stored.labels, indices=stored.indices, logits=stored.logits)
    write_out(folder / name, content.getvalue())


def read_logits(path: Path, *, header: bool = False) -> StoredLogits:
    """A measurement that `write_logits` wrote.

    Args:
        header: all but the logits, which are then [images, 0].

    Raises:
        InputError: it is missing, damaged, or something else.
    """
    check_file(path, "a file of logits")
    try:
        # Numpy would speak of pickles, and how to load them.
        if not zipfile.is_zipfile(path):
            raise ValueError("is no whole archive")
        with np.load(path, allow_pickle=False) as file:
            about: Any = parse_json(file["about"].tobytes())
            if about["format"] != _FORMAT:
                raise ValueError(f"format {about['format']!r}, expected {_FORMAT}")
            labels, indices, names = file["labels"], file["indices"], about["names"]
            logits = np.empty((len(names), 0), np.float32) if header else file["logits"]
        shapes = [list(one.shape) for one in (labels, indices, logits)]
        if shapes != [[len(names)], [len(names)], [len(names), 0 if header else len(about["task"]["classes"])]]:
            raise ValueError(f"labels, indices and logits {shapes} of {len(names)} images")
        # JSON has no tuples.
        measured: dict[str, Any] = {
            key: tuple(one) if isinstance(one, list) else one for key, one in about["measured"].items()
        }
        ResultRow(**vars(MetricValue("top1", 0.0, FRACTION, 1)), **measured)
        scorings = [Scoring(**one) for one in about["scorings"]]
        slices = about["slices"] or [{}] * len(names)
        return StoredLogits(logits, labels, indices, names, slices, about["task"], measured, about["work"], scorings)
    except _WHAT_FAILS as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read as logits ({said}), which `sightline evaluate` writes") from None


def find_logits(place: Path) -> list[Path]:
    """The files of logits at a place, itself one, the folder of some, or that of a run that has such a folder, by name.

    Raises:
        InputError: there is none.
    """
    if place.is_file():
        return [place]
    folder = place / LOGITS if (place / LOGITS).is_dir() else place
    found = sorted(folder.glob(f"*{ENDING}")) if place.is_dir() else []
    if not found:
        near = "" if place.exists() else similar_file_hint(place)
        raise InputError(f"{place}: holds no logits{near} (expected a folder that `sightline evaluate --logits` wrote)")
    return found


def rows_of(metrics: Iterable[Metric], measured: Mapping[str, Any]) -> list[ResultRow]:
    """The rows of some metrics of one measurement; of shrunk images no parts, but however they were looked at."""
    found = (one for metric in metrics for one in metric.rows())
    if measured["shrunk"] is not None:
        found = (one for one in found if one.slices.keys() <= {INFERENCE, FITTED})
    return [ResultRow(**vars(one), **measured) for one in found]


def refuse_twice(stored: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuse files of which two are of the same measurement, whose rows nobody could tell apart.

    Args:
        stored: file -> `measured` of its `StoredLogits`.

    Raises:
        InputError: names both.
    """
    known: dict[str, Path] = {}
    for file, measured in stored.items():
        told = repr(sorted((key, one) for key, one in measured.items() if key not in _OF_ONE_TIME))
        if told in known:
            raise InputError(f"{file}: is the same measurement as {known[told].name} (expected each once)")
        known[told] = file


def rescore(
    stored: StoredLogits, advance: Callable[[int], None] | None = None, temperature: Temperature | None = None
) -> list[ResultRow]:
    """Every metric of stored logits, by each of their scorings: the rows of the measurement itself, to the last bit.

    Args:
        advance: called with the number of images.
        temperature: that the logits are measured over too.

    Raises:
        InputError: its options are not known to this version.
    """
    rows: list[ResultRow] = []
    for one in stored.scored():
        metrics, chosen = metrics_of(with_temperature(task_from(one.task), temperature)), one.task.get("metrics")
        metrics = [metric for metric in metrics if not chosen or metric.name in chosen]
        for start in range(0, len(one.names), TOGETHER):
            these = slice(start, start + TOGETHER)
            logits, names = torch.from_numpy(one.logits[these]), list(one.names[these])
            labels, indices = (torch.from_numpy(some[these]) for some in (one.labels, one.indices))
            # Metrics of scores look at no pixel.
            layout = TokenLayout.uniform(Grid(1, 1), len(names))
            batch = Batch(logits.new_empty(0), layout, {"labels": labels}, indices, names, list(one.slices[these]))
            for metric in metrics:
                metric.update(logits, batch)
        rows += rows_of(metrics, one.measured)
    if advance is not None:
        advance(len(stored.names))
    return rows
