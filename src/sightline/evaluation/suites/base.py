"""What a suite is: data sets on which a model is tested together, and how answers on each are scored."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from sightline import registry
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import images_below, natural_key
from sightline.data.labelled import ClassificationFiles
from sightline.data.open import list_sources, open_source, parse_spec, source_class
from sightline.data.sizes import View
from sightline.data.source import Example, Source
from sightline.errors import InputError, require_known, unknown_name_error
from sightline.evaluation.preparations.base import Preparation, Whole
from sightline.evaluation.scoring import Scoring

TEST = "test"


@dataclass(frozen=True)
class EvalSet:
    """Images that are measured together: a split of a data set, or a part of a suite.

    Attributes:
        data: what it is called.
        source: the images.
        split: which of them.
        scorings: how answers are scored, `right` by the images' indices, in the numbers of the source's classes; by
            their labels where there is none.
        imagenet: its classes are the 1,000 of ImageNet, in their order, which the model's must be.
        careful: as `Preparation`.
        by_place: the model's classes are these by their places, whatever names it has for them.
        preparation: the name of how a suite's images are prepared; "" of a data set's, which are as in training.
        views: how they are shown: square sides in pixels, and views of images at their own aspect.
        images: at most so many are measured, spread over the split; as the configuration says unless given.
        asked: whether it is to be measured, and not for what is fitted on it alone.
        keep_predictions: what is said of each image is kept, and of some drawn.
        content: tells the images of a suite, as `digest`, so that what is finished of others holds.
    """

    data: str
    source: Source
    split: str
    scorings: tuple[Scoring, ...] = ()
    imagenet: bool = False
    careful: bool = False
    by_place: bool = False
    preparation: str = ""
    views: tuple[int | View, ...] = ()
    images: int | None = None
    asked: bool = True
    keep_predictions: bool = False
    content: str = ""

    def limited(self, count: int) -> EvalSet:
        """The same with at most so many images, spread over classes; what is drawn is counted where it is shown."""
        if not isinstance(self.source, ClassificationFiles) or self.source.length(self.split) <= count:
            return self
        kept = spread_over_classes(self.source.labels_of(self.split), count)
        return self._of(self.source.subset(self.split, kept), kept)

    def left_in(self, source: Source) -> EvalSet:
        """The same of what is left of its images, without those that cannot be read: each keeps its right answers."""
        if not isinstance(self.source, ClassificationFiles) or not isinstance(source, ClassificationFiles):
            return replace(self, source=source)
        place = {row: number for number, row in enumerate(self.source.rows_of(self.split))}
        return self._of(source, [place[row] for row in source.rows_of(self.split)])

    def _of(self, source: Source, kept: Sequence[int]) -> EvalSet:
        return replace(self, source=source, scorings=tuple(one.at(kept) for one in self.scorings))

    def digest(self) -> str:
        """Tells its images, how they are prepared and how they are scored from any other, by the headers of these
        images alone, of which some may have been chosen."""
        source, seen = self.source, hashlib.sha256(repr(self.source.transform).encode())
        seen.update(json.dumps([self.source.classes, [one.record() for one in self.scorings]]).encode())
        if not isinstance(source, ClassificationFiles):
            seen.update(source.fingerprint(self.split).digest.encode())
            return seen.hexdigest()[:32]
        listing, rows = source.listing, source.rows_of(self.split)
        if isinstance(source, SuiteImages):
            seen.update(json.dumps([source.slices[row] for row in rows]).encode())
        listing.read_headers(rows)
        for row in rows:
            seen.update(f"{listing.names[row]}\0{listing.stats[row, 0]}\0".encode("utf-8", "surrogatepass"))
            seen.update(listing.samples[row].tobytes())
        return seen.hexdigest()[:32]

    def shown_by(self, preparation: Preparation) -> EvalSet:
        """The same, prepared so; images that were cut before, and drawn ones, are shown as they are."""
        if self.source.transform is None or isinstance(self.source.transform, Whole):
            return self
        source = copy.copy(self.source)
        source.transform = preparation
        return replace(self, source=source)


@dataclass(frozen=True)
class OpenedSuite:
    """A suite's parts that are there, of the others a line each that says where they were looked for, and the folders
    that it reads."""

    parts: tuple[EvalSet, ...]
    missing: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()


class Suite(ABC):
    """One suite, in a file of its own.

    Attributes:
        name: what it is called, before the colon of `--suite NAME:ROOT`.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def open(cls, argument: str) -> OpenedSuite:
        """The suite for what follows the colon ("" for nothing); no image is read yet.

        Raises:
            InputError: nothing of it is there, or what is there is of another form.
            UnreadableDataError: a folder may not be read.
        """

    @classmethod
    def parse(cls, argument: str, *allowed: str) -> tuple[str, dict[str, str]]:
        """What follows the colon, "ROOT,option=value,...", taken apart.

        Raises:
            InputError: an option is not known, is given twice, or has no value.
        """
        found = re.fullmatch(r"([^,]*)((?:,[a-z0-9_]+=[^,]*)*)", argument)
        if found is None:
            raise InputError(f"suite {cls.name}:{argument}: expected ROOT,option=value (options: {', '.join(allowed)})")
        options: dict[str, str] = {}
        for pair in found[2].split(",")[1:]:
            option, _, value = pair.partition("=")
            require_known(f"suite {cls.name}: option", option, allowed)
            if option in options or not value:
                wrong = "twice" if value else "without a value"
                raise InputError(f"suite {cls.name}: option {option} {wrong} (expected: one)")
            options[option] = value
        return found[1], options

    @classmethod
    def root(cls, argument: str) -> Path:
        """The folder that an argument names.

        Raises:
            InputError: there is none.
        """
        if not argument:
            raise InputError(f"suite {cls.name}: needs a folder: --suite {cls.name}:ROOT")
        if not Path(argument).is_dir():
            raise InputError(f"suite {cls.name}: {argument}: no such folder")
        return Path(argument)

    @classmethod
    def chosen(cls, asked: str | None, allowed: Iterable[str], what: str) -> tuple[str, ...]:
        """Words with + between them, each one of some; all where nothing was asked for.

        Raises:
            InputError: a word is none of them; names the nearest.
        """
        words = tuple(allowed) if asked is None else tuple(dict.fromkeys(asked.split("+")))
        for word in words:
            require_known(f"suite {cls.name}: {what}", word, tuple(allowed))
        return words


def list_suites() -> tuple[str, ...]:
    """The names of all suites, sorted; any data set is one too."""
    return tuple(sorted(registry.classes(Suite, __package__ or "")))


def open_suite(spec: str) -> OpenedSuite:
    """A suite from `name` or `name:argument`; a data set of training is one too.

    Raises:
        InputError: there is none of that name, or as `Suite.open`.
    """
    name, _, argument = spec.partition(":")
    if name in list_suites():
        return registry.find(Suite, __package__ or "", "suite", name).open(argument)
    if name not in list_sources() and not Path(spec).exists():
        raise unknown_name_error("suite", name, sorted({*list_suites(), *list_sources()}))
    return of_source(spec)


def of_source(spec: str) -> OpenedSuite:
    """A data set of training as a suite: `test`, and fonts that were held out; its last split where it has no test."""
    source = open_source(spec)
    usual = tuple(name for name in (TEST, "heldout_fonts") if name in source.splits) or source.splits[-1:]
    name, argument, _ = parse_spec(spec)
    folders = source_class(name).folders(argument)
    return OpenedSuite(tuple(EvalSet(spec, source, split) for split in usual), (), folders)


def place_of(root: Path, names: Sequence[str], fits: Callable[[Path], bool] = Path.is_dir) -> Path | None:
    """The first of some folders below a root, or the root itself where it is called so; None where there is none."""
    here = [root] if root.name in {Path(name).name for name in names} and root.is_dir() else []
    return next((one for one in (*(root / name for name in names), *here) if one.is_dir() and fits(one)), None)


@dataclass(frozen=True)
class LabelledFile:
    """An image: its file, its name below the data set's folder, the number of its class, and its `Example.slices`."""

    path: str
    name: str
    label: int
    slices: Mapping[str, str] = field(default_factory=dict)


class SuiteImages(ClassificationFiles):
    """Files with a class each, as a suite finds them: one split, `test`, in their order."""

    name: ClassVar[str] = "suite"

    def __init__(self, root: Path, classes: Sequence[str], images: Iterable[LabelledFile]) -> None:
        """A data set of these images, below a folder."""
        found = list(images)
        self.slices = [one.slices for one in found]
        listing = ImageIndex.of_files([f"{TEST}/{one.name}" for one in found], [one.path for one in found])
        super().__init__(root, classes, listing, [one.label for one in found])

    def example(self, split: str, index: int, image_size: tuple[int, int], **drawn: Any) -> Example:
        made = super().example(split, index, image_size, **drawn)
        return replace(made, slices={**made.slices, **self.slices[self._rows[self._folder(split)][index]]})


def in_class_folders(root: Path, labels: Mapping[str, int], what: str) -> list[LabelledFile]:
    """The images of `root/CLASS/`, at any depth below, class by class in natural order (2 before 10).

    Args:
        labels: the number of a class by its folder's name; what: the data set, for messages.

    Raises:
        InputError: there is no such folder, one in it is none of the classes, or there is no image; names the folder.
        UnreadableDataError: a folder may not be read.
    """
    found: list[LabelledFile] = []
    if not root.is_dir():
        raise InputError(f"{root}: no such folder (expected {what}: CLASS/images in it)")
    folders = sorted(one for one in os.listdir(root) if (root / one).is_dir() and not one.startswith("."))
    for folder in sorted(folders, key=natural_key):
        if folder not in labels:
            expected = ", ".join(list(labels)[:3])
            raise InputError(
                f"{root / folder}: is no class of {what} (expected {len(labels)} folders: {expected}, ...)"
            )
        above = len(os.fspath(root)) + 1
        paths = sorted(images_below(root / folder, []), key=natural_key)
        found += [LabelledFile(path, path[above:], labels[folder]) for path in paths]
    if not found:
        raise InputError(f"{root}: holds no image in class folders (expected {what}: CLASS/images in it)")
    return found


def spread_over_classes(labels: Sequence[Any], count: int) -> list[int]:
    """Places of so many images, rising, spread over their classes: one of each before a second of any; where not each
    class has one more, classes spread over all of them. All of fewer."""
    seen: dict[Any, int] = {}
    rounds: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        seen[label] = seen.get(label, 0) + 1
        rounds.setdefault(seen[label], []).append(place)
    chosen: list[int] = []
    for one in rounds.values():
        # By class, whatever the order of the images.
        some, left = sorted(one, key=lambda place: labels[place]), count - len(chosen)
        chosen += some if len(some) <= left else [some[number * len(some) // left] for number in range(left)]
    return sorted(chosen)
