"""Stored logits of several measurements as tables of classes, over the images that all of them hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from sightline.errors import InputError, require_known
from sightline.evaluation.logits import TOGETHER, StoredLogits, read_logits
from sightline.metrics.by_class import class_measures, distinct
from sightline.results.classes import MEAN, ClassTable
from sightline.results.rows import ResultRow, size_label

# As the data set names its files, in whatever folder they are.
_NUMBER = re.compile(r"ILSVRC2012_(?:val|test)_(\d+)")


def class_rows(table: ClassTable) -> list[ResultRow]:
    """Of each class; see `metrics.by_class.class_measures`."""
    return [ResultRow(**vars(one), **table.measured) for one in class_measures(table)]


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
) -> list[ClassTable]:
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
    headers = {file: read_logits(file, header=True) for file in files}
    headers = _of_one_split({file: one for file, one in headers.items() if one.measured["shrunk"] is None}, split)
    known: dict[tuple[str, str], Path] = {}
    for file, header in headers.items():
        place = _line(header, headers.values()), size_label(header.measured)
        if known.setdefault(place, file) is not file:
            raise InputError(f"{file}: {' at '.join(place)} is in {known[place]} too (expected each once)")
    indices = _common(headers, first)
    made = []
    for (line, _), file in known.items():
        stored = read_logits(file)
        made.append(_table(stored, line, indices, _by_labels(stored, file)))
        if advance is not None:
            advance(1)
    return sorted(made, key=lambda one: (one.patches, one.shown))


def _by_labels(stored: StoredLogits, file: Path) -> dict[str, Any]:
    """What rows say more where one pass is scored in several ways: of that by the images' labels, among all classes."""
    if not stored.scorings:
        return {}
    plain = next((one for one in stored.scorings if one.right is None and one.classes is None), None)
    if plain is None:
        names = ", ".join(one.data for one in stored.scorings)
        raise InputError(
            f"{file}: {names} is not scored by one label an image, among all classes (expected one that is)"
        )
    return {"data": plain.data, "classes": stored.logits.shape[1]}


def _of_one_split(headers: Mapping[Path, StoredLogits], split: str | None) -> dict[Path, StoredLogits]:
    """Those of a split, of one data set, task and list of classes."""
    splits = list(dict.fromkeys(one.measured["split"] for one in headers.values()))
    if not splits:
        raise InputError("classes: all logits are of images that were shrunk (expected some as they are)")
    chosen = split or ("test" if "test" in splits else splits[0] if len(splits) == 1 else None)
    if chosen is None:
        raise InputError(f"classes: logits of several splits, {', '.join(splits)} (expected --split with one of them)")
    require_known("--split", chosen, splits)
    kept = {file: one for file, one in headers.items() if one.measured["split"] == chosen}
    first, like = next(iter(kept.items()))
    for file, one in kept.items():
        for name in ("data", "task"):
            if one.measured[name] != like.measured[name]:
                said = f"{name} {one.measured[name]!r}, of {first} {like.measured[name]!r}"
                raise InputError(f"{file}: {said} (expected measurements of the same images)")
        if one.task["classes"] != like.task["classes"]:
            raise InputError(f"{file}: other classes than those of {first} (expected the same, in one order)")
    return kept


def _line(one: StoredLogits, every: Iterable[StoredLogits]) -> str:
    """What it is called: by its run, and by seed or knob where a run has several."""
    run, seed, tuned = (one.measured[name] for name in ("run", "seed", "tuned"))
    others = [other.measured for other in every if other.measured["run"] == run]
    # What stands for all of them has a name of its own.
    told = [f"seed {seed}"] if run == MEAN or any(other["seed"] != seed for other in others) else []
    if any(other["tuned"] != tuned for other in others):
        told.append("tuned parameter" if tuned else "default parameter")
    return f"{run} ({', '.join(told)})" if told else str(run)


def _common(headers: Mapping[Path, StoredLogits], first: int | None) -> np.ndarray:
    """The indices, rising, of the images that all hold."""
    (like, one), *others = headers.items()
    found = np.unique(one.indices)
    for _, other in others:
        found = np.intersect1d(found, other.indices)
    if not len(found):
        raise InputError("classes: no image is in all of these logits (expected measurements of the same images)")
    truth = _at(one, found)
    for file, other in others:
        if (other.labels[_at(other, found)] != one.labels[truth]).any():
            raise InputError(f"{file}: other labels than those of {like} (expected the same images)")
    if first is None:
        return found
    places: list[int] = truth.tolist()
    names = [one.names[place] for place in places]
    known = [ilsvrc_number(name) for name in names]
    if None in known:
        name = names[known.index(None)]
        raise InputError(f"--first: image {name!r} has no number (expected names as ILSVRC2012_val_00000001.JPEG)")
    numbers = np.array(known, int)
    if first < numbers.min():
        raise InputError(f"--first {first}: no image has such a number (the lowest is {numbers.min()})")
    return found[numbers <= first]


def _at(stored: StoredLogits, indices: np.ndarray) -> np.ndarray:
    """Where images stand in a file."""
    order = np.argsort(stored.indices, kind="stable")
    return order[np.searchsorted(stored.indices, indices, sorter=order)]


def _table(stored: StoredLogits, line: str, indices: np.ndarray, scored: dict[str, Any]) -> ClassTable:
    places, names, measured = _at(stored, indices), stored.task["classes"], stored.measured
    sums = torch.zeros(len(names), len(names), dtype=torch.float64)
    for start in range(0, len(places), TOGETHER):
        these = places[start : start + TOGETHER]
        chances = torch.from_numpy(stored.logits[these]).double().softmax(-1)
        sums.index_add_(0, torch.from_numpy(stored.labels[these]), chances)
    labels = stored.labels[places]
    counts = np.bincount(labels, minlength=len(names))
    return ClassTable(
        line, size_label(measured), measured["patches"], f"{measured['train_resolution']} px", distinct(names), labels,
        # The first of equal scores, as `top1` has it.
        stored.logits.argmax(-1)[places], sums.numpy() / np.maximum(counts, 1)[:, None], {**measured, **scored},
    )  # fmt: skip
