"""A table of images with captions, labels or both: csv:FILE, csv:DIR."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from sightline.data.folders import split_by_name, split_in
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import NO_LABEL, natural_key
from sightline.data.labelled import ClassificationFiles, captions_in, class_part
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError, require_known
from sightline.io.read import ROWS, read_text

_PATHS, _CAPTIONS = ("path", "file", "image", "filepath"), ("caption", "title", "text")
# FairFace's says which images are its balanced test; a column without a name numbers rows.
_NO_LABEL_COLUMNS = ("", "service_test")
_FAIRFACE = ("age", "gender", "race")
_CELEBA, _PARTITION, _IMAGES = "list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba"
_PARTS = {"0": "train", "1": "val", "2": "test"}
_SEVERAL = "\0"


class CsvTable(ClassificationFiles):
    """Images in a table with a line of column names, divided by commas, or tabs where that line has one.

    Columns, in any case: `path`, `file`, `image` or `filepath`, relative to the table's folder; `caption`, `title` or
    `text`, if there is one; and, if there is one, `split`, as `imagefolder` calls splits. Without it all images are the
    split that a word of the table's name means (`train.csv`), else `train`. Several rows of one image are several
    captions. An image that is not there, or without a caption where there are captions, is one that cannot be read.

    Every other column that has two values, and at most half as many as images unless it is named in an option or is
    FairFace's, is an attribute; an image without a word there, or with several, has no label in it. The only attribute
    of a table without captions is the class, or else what `,label=NAME` names: images without that are left out, but of
    splits that have none. `,group=NAME+NAME` names those by which accuracy is cut. A DIR has a table for each split
    (`fairface_label_train.csv`), or is CelebA's with `list_attr_celeba.txt`, which may be named itself too,
    `img_align_celeba/` and `list_eval_partition.txt`.
    """

    name: ClassVar[str] = "csv"
    options: ClassVar[tuple[str, ...]] = ("label", "group")
    provides = ("captions",)

    def __init__(self, place: str | Path, label: str | None = None, group: str | None = None) -> None:
        """Read the tables; raises InputError where a column is missing, a row has no path, or there is none."""
        place = Path(place)
        numbers, captions = dict[tuple[str, str], int](), list[list[str]]()
        words, unknown = dict[str, list[str]](), dict[str, None]()
        for file in _tables(place):
            for path, said, caption, row in _rows(file):
                split = split_in(file.name) or "train" if said is None else split_by_name(said)
                if split is None:
                    unknown[f"{file}: {said!r}"] = None
                    continue
                number = numbers.setdefault((split, path), len(numbers))
                captions += [[]] if number == len(captions) else []
                captions[number] += [] if caption is None else [caption]
                for column, word in row.items():
                    own = words.setdefault(column, [])
                    own += [""] * (number + 1 - len(own))
                    if word and word != own[number]:
                        own[number] = _SEVERAL if own[number] else sys.intern(word)
        if not numbers:
            raise InputError(f"{place}: has no rows of a split (expected: a path and a caption or labels in each)")
        self.skipped = tuple(Unreadable(one, "not a split") for one in unknown)
        known = {*_FAIRFACE, label, *(group.split("+") if group else ())}
        every = ((column, _labels(own, len(numbers), column in known)) for column, own in words.items())
        found = {column: one for column, one in every if one is not None}
        captioned = any(captions)
        if not captioned and not found:
            expected = f"expected: {', '.join(_CAPTIONS)}, or a column of at most half as many labels as images"
            raise InputError(f"{place}: has no captions and no labels ({expected})")
        label = next(iter(found)) if label is None and len(found) == 1 and not captioned else label
        self.grouped_by = tuple(group.split("+") if group else ())
        for option, column in (("label", label), *(("group", one) for one in self.grouped_by)):
            if column is not None:
                require_known(f"{place}: {option}", column, found)
        classes, labels = found[label] if label else ((), np.full(len(numbers), NO_LABEL))
        splits = np.array([split for split, _ in numbers])
        rows = np.flatnonzero((labels >= 0) | ~np.isin(splits, splits[labels >= 0]))
        if len(rows) < len(numbers):
            self.skipped += (Unreadable(str(place), f"{len(numbers) - len(rows):,} images without {label}"),)
        self.attributes = {column: values for column, (values, _) in found.items()}
        self.attribute_labels = {column: own[rows] for column, (_, own) in found.items()}
        self.class_attribute = label
        self.provides = ("label",) if label else ("captions",) if captioned else ("attributes",)
        self._places = dict.fromkeys(splits.tolist(), place)
        # A name of no file, one a table.
        self.remembered_as = place.parent / f":csv:{place.name}"
        root, keys, labels = place if place.is_dir() else place.parent, list(numbers), labels.tolist()
        names = [
            "/".join((keys[row][0], *[class_part(classes, labels[row])] * bool(label), keys[row][1])) for row in rows
        ]
        listing = ImageIndex.of_files(names, [root / keys[row][1] for row in rows])
        told = [captions_in(captions[row]) for row in rows] if captioned else ()
        super().__init__(root, classes, listing, [labels[row] for row in rows], None, told, captioned and not label)
        self.task = "attributes" if self.provides == ("attributes",) else self.task


def _tables(place: Path) -> list[Path]:
    """The file, or those of a folder that are of a split."""
    if not place.is_dir() or (place / _CELEBA).is_file():
        return [place / _CELEBA if place.is_dir() else place]
    found = [one for one in sorted(place.iterdir()) if one.suffix.lower() in (".csv", ".tsv") and split_in(one.name)]
    if not found:
        raise InputError(f"{place}: has no table of a split (expected: train.csv, val.csv, ... or {_CELEBA})")
    return found


def _rows(file: Path) -> Iterator[tuple[str, str | None, str | None, dict[str, str]]]:
    """Of each image its path from the table's folder, split and caption, None where the table has none, and what other
    columns say."""
    text = read_text(file, ROWS, "a table of paths")
    first, _, rest = text.partition("\n")
    if first.strip().isdigit():
        names, rows = _celeba(file, int(first), [line.split() for line in rest.splitlines() if line.strip()])
    else:
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in first else ",")
        names = rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
    lower = {name.lower(): name for name in names}
    known = _PATHS, _CAPTIONS, ("split",)
    where, said, split = (next((lower[one] for one in some if one in lower), "") for some in known)
    if not where:
        expected = f"columns: {', '.join(names) or 'none'}; expected: {', '.join(_PATHS)}"
        raise InputError(f"{file}: has no column of paths ({expected})")
    others = [name for name in names if name.lower() not in _NO_LABEL_COLUMNS and name not in (where, said, split)]
    try:
        for number, given in enumerate(rows, start=2):
            row = {name: (given[name] or "").strip() for name in names if name}
            if not row[where]:
                raise InputError(f"{file}: row {number}: has no path (expected: the file of an image)")
            yield row[where], row.get(split), row.get(said), {name: row[name] for name in others}
    except csv.Error as error:
        raise InputError(f"{file}: {error} (expected: rows of a table)") from None


def _celeba(file: Path, count: int, lines: list[list[str]]) -> tuple[list[str], Iterable[dict[str, str]]]:
    """The columns and rows of CelebA's list, whose splits stand in another one."""
    (names, *rows), place = lines or [[]], file.with_name(_PARTITION)
    if len(rows) != count or any(len(row) != len(names) + 1 for row in rows):
        raise InputError(f"{file}: is not whole (expected: {count} lines, each an image and {len(names)} labels)")
    told = read_text(place, ROWS, "splits").split() if place.is_file() else []
    parts = {name: _PARTS.get(part, part) for name, part in zip(told[::2], told[1::2], strict=True)}
    names, folder = ["path", *["split"] * bool(parts), *names], f"{_IMAGES}/" * file.with_name(_IMAGES).is_dir()
    said = ((f"{folder}{name}", *[parts.get(name, "")] * bool(parts), *words) for name, *words in rows)
    return names, (dict(zip(names, one, strict=True)) for one in said)


def _labels(words: list[str], images: int, known: bool) -> tuple[tuple[str, ...], np.ndarray] | None:
    """The values of a column, numbers by size and words as people count, and of each image the number of its value;
    None where they are no labels; `known` ones may be as many as images."""
    values = set(words) - {"", _SEVERAL}
    if len(values) < 2 or not (known or len(values) <= sum(word in values for word in words) / 2):
        return None
    try:
        names = sorted(values, key=lambda one: (float(one), one))
    except ValueError:
        names = sorted(values, key=natural_key)
    place = {name: number for number, name in enumerate(names)}
    found = [place.get(word, NO_LABEL) for word in words]
    return tuple(names), np.array([*found, *[NO_LABEL] * (images - len(found))], np.int32)
