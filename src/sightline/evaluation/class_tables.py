"""Stored logits of several measurements as tables of classes, over the images that all of them hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from sightline.errors import InputError, require_known
from sightline.evaluation.logits import StoredLogits, images_of, read_logits
from sightline.metrics.by_class import class_measures, distinct
from sightline.results.classes import MEAN, ClassTable
from sightline.results.rows import SQUARE, ResultRow

# As the data set names its files, in whatever folder they are.
_NUMBER = re.compile(r"ILSVRC2012_(?:val|test)_(\d+)")
_TOGETHER = 512
# Beside the split, which is chosen.
_SHARED = ("data", "task")


@dataclass(frozen=True, eq=False)
class StoredTable:
    """A table, and what the rows of its measurement say."""

    table: ClassTable
    measured: Mapping[str, Any]

    def rows(self) -> list[ResultRow]:
        """Of each class; see `metrics.by_class.class_measures`."""
        return [ResultRow(**vars(one), **self.measured) for one in class_measures(self.table)]


@dataclass(frozen=True, eq=False)
class _Header:
    file: Path
    names: Sequence[str]
    indices: np.ndarray
    labels: np.ndarray
    classes: Sequence[str]
    measured: Mapping[str, Any]

    @property
    def shown(self) -> str:
        said = self.measured
        size = said["view"] if said["view"] != SQUARE else f"{said['resolution']} px"
        size = size if said.get("frames") is None else f"{said['frames']} frames of {size}"
        return size if said.get("patch_size") is None else f"{size} in patches of {said['patch_size']} px"


def ilsvrc_number(name: str) -> int | None:
    """The number of an image of ILSVRC 2012's validation or test, by the name of its file; None of another one."""
    found = _NUMBER.search(PurePath(name).name)
    return int(found[1]) if found else None


def stored_tables(
    files: Sequence[Path],
    *,
    split: str | None = None,
    first: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> list[StoredTable]:
    """A table of each measurement, of one split, over the images that all of them hold, in the order of their sizes.

    Images that were shrunk before they were seen are left out.

    Args:
        files: of logits.
        split: which; `test` unless given where it is among several.
        first: only images with an ILSVRC number up to this, whatever their order: LookHere (appendix A.9) looks at the
            first 5,000, which by folders of classes would be those of a hundred.
        advance: called for each file that was read.

    Raises:
        InputError: files are of several data sets or classes, or one measurement is there twice; no image is left; an
            image has no such number; of an image several answers are right; or as `read_logits`.
    """
    headers = [_header(file) for file in files]
    headers = [one for one in headers if one.measured["shrunk"] is None]
    headers = _of_one_split(headers, split)
    lines = _lines(headers)
    known: dict[tuple[str, str], Path] = {}
    for header, line in zip(headers, lines, strict=True):
        twin = known.setdefault((line, header.shown), header.file)
        if twin is not header.file:
            raise InputError(f"{header.file}: {line} at {header.shown} is in {twin} too (expected each once)")
    indices = _common(headers, first)
    made = []
    for header, line in zip(headers, lines, strict=True):
        stored = read_logits(header.file)
        measured = dict(header.measured) | _by_labels(stored, header.file)
        made.append(StoredTable(_table(stored, header, line, indices), measured))
        if advance is not None:
            advance(1)
    return sorted(made, key=lambda one: (one.table.patches, one.table.shown))


def _by_labels(stored: StoredLogits, file: Path) -> dict[str, Any]:
    """What rows say more where one pass is scored in several ways: of that by the images' labels, among all classes.

    Raises:
        InputError: there is none, as where several answers are right.
    """
    if not stored.scorings:
        return {}
    plain = next((one for one in stored.scorings if one.right is None and one.classes is None), None)
    if plain is None:
        names = ", ".join(one.data for one in stored.scorings)
        raise InputError(
            f"{file}: {names} is not scored by one label an image, among all classes (expected one that is)"
        )
    return {"data": plain.data, "classes": stored.logits.shape[1]}


def _header(file: Path) -> _Header:
    names, indices, labels, task, measured = images_of(file)
    return _Header(file, names, indices, labels, task["classes"], measured)


def _of_one_split(headers: Sequence[_Header], split: str | None) -> list[_Header]:
    splits = list(dict.fromkeys(one.measured["split"] for one in headers))
    if not splits:
        raise InputError("classes: all logits are of images that were shrunk (expected some as they are)")
    chosen = split or ("test" if "test" in splits else splits[0] if len(splits) == 1 else None)
    if chosen is None:
        raise InputError(f"classes: logits of several splits, {', '.join(splits)} (expected --split with one of them)")
    require_known("--split", chosen, splits)
    kept = [one for one in headers if one.measured["split"] == chosen]
    for one in kept[1:]:
        for name in _SHARED:
            if one.measured[name] != kept[0].measured[name]:
                said = f"{name} {one.measured[name]!r}, of {kept[0].file} {kept[0].measured[name]!r}"
                raise InputError(f"{one.file}: {said} (expected measurements of the same images)")
        if one.classes != kept[0].classes:
            raise InputError(
                f"{one.file}: other classes than those of {kept[0].file} (expected the same, in one order)"
            )
    return kept


def _lines(headers: Sequence[_Header]) -> list[str]:
    """What each is called: by its run, and by seed or knob where a run has several."""

    def several(name: str, run: str) -> bool:
        return len({one.measured[name] for one in headers if one.measured["run"] == run}) > 1

    lines = []
    for one in headers:
        run, seed, tuned = (one.measured[name] for name in ("run", "seed", "tuned"))
        # What stands for all of them has a name of its own.
        told = [f"seed {seed}"] if several("seed", run) or run == MEAN else []
        if several("tuned", run):
            told.append("tuned knob" if tuned else "default knob")
        lines.append(f"{run} ({', '.join(told)})" if told else str(run))
    return lines


def _common(headers: Sequence[_Header], first: int | None) -> np.ndarray:
    """The indices, rising, of the images that all hold."""
    found = headers[0].indices
    for one in headers[1:]:
        found = np.intersect1d(found, one.indices)
    found = np.unique(found)
    if not len(found):
        raise InputError("classes: no image is in all of these logits (expected measurements of the same images)")
    truth = _at(headers[0], found)
    for one in headers[1:]:
        if (one.labels[_at(one, found)] != headers[0].labels[truth]).any():
            raise InputError(f"{one.file}: other labels than those of {headers[0].file} (expected the same images)")
    if first is None:
        return found
    numbers = []
    for place in truth:
        name = headers[0].names[int(place)]
        number = ilsvrc_number(name)
        if number is None:
            raise InputError(f"--first: image {name!r} has no number (expected names as ILSVRC2012_val_00000001.JPEG)")
        numbers.append(number)
    kept = found[np.array(numbers) <= first]
    if not len(kept):
        raise InputError(f"--first {first}: no image has such a number (the lowest is {min(numbers)})")
    return kept


def _at(header: _Header, indices: np.ndarray) -> np.ndarray:
    """Where images stand in a file."""
    order = np.argsort(header.indices, kind="stable")
    return order[np.searchsorted(header.indices, indices, sorter=order)]


def _table(stored: StoredLogits, header: _Header, line: str, indices: np.ndarray) -> ClassTable:
    places, classes = _at(header, indices), len(header.classes)
    sums, answers = torch.zeros(classes, classes, dtype=torch.float64), []
    for start in range(0, len(places), _TOGETHER):
        these = places[start : start + _TOGETHER]
        logits = torch.from_numpy(stored.logits[these])
        # The first of equal scores, as `top1` has it.
        answers.append(stored.logits[these].argmax(-1))
        sums.index_add_(0, torch.from_numpy(stored.labels[these]), logits.double().softmax(-1))
    labels, measured = stored.labels[places], header.measured
    counts = np.bincount(labels, minlength=classes)
    chances = sums.numpy() / np.maximum(counts, 1)[:, None]
    return ClassTable(
        line, header.shown, measured["patches"], f"{measured['train_resolution']} px", distinct(header.classes),
        labels, np.concatenate(answers), chances,
    )  # fmt: skip
