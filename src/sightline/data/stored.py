"""Data sets whose images are files: one listing, headers read before hours of work, pixels when their batch comes."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sightline.data.config import SkipUnreadable
from sightline.data.crops import Picture, RandomResizedCrop, size_of
from sightline.data.fingerprint import Fingerprint
from sightline.data.folders import is_same_split, split_by_name, walk
from sightline.data.image_file import read_image, read_picture, too_large
from sightline.data.image_index import SAMPLED_WHOLE, ImageIndex, thread_map
from sightline.data.rng import generator
from sightline.data.skip_policy import Progress, SkipPolicy, Unreadable
from sightline.data.source import Example, Source
from sightline.data.summary import MOST_PIXELS, SAMPLED, Summary, measure_colours
from sightline.data.targets import Target
from sightline.errors import InputError, UnreadableDataError, did_you_mean, require_known

# Whose image it is where a file stands in several splits.
_KEEPS = ("train", "test", "val", "validation", "minival")
# In the place of the folder of a split that is held out of train.
_HELD_OUT = {"minival": "held out as minival", "test": "held out as test"}


class FileSource(Source):
    """Images that are files below a folder, and what files beside them say of each.

    A kind of data set finds its files, and says by `target` what is known of an image. What was found out of files is
    remembered (`image_index`), and asked for again where a file's size or times changed.

    Attributes:
        options: names of what may stand behind the folder, as "DIR,flip=0"; `__init__` takes each as it is written.
        root: the folder.
        listing: all files that are the data set.
        images: the rows of all images among them.
        cleaned: whether what stands in two splits was left out of one.
        unlabelled: splits of which no image has a label, which are not measured.
        reduced: whether a training image may be decoded at a part of its size, where nothing is said of its pixels.
        captions: of each row of the listing, where the data set has some.
        remembered_as: the place by whose name the listing is kept.
    """

    options: ClassVar[tuple[str, ...]] = ()
    transform: RandomResizedCrop
    reduced: ClassVar[bool] = False
    cleaned: bool = False
    unlabelled: frozenset[str] = frozenset()
    captions: Sequence[tuple[str, ...]] = ()
    remembered_as: Path | None = None
    _places: Mapping[str, Path] = {}

    def __init__(
        self,
        root: Path,
        listing: ImageIndex,
        images: Sequence[int] | None = None,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        """A data set of these files.

        Args:
            images: the rows that are images, in the order of their indices; None: all.
            roles: name of a split -> its folder, as `split_roles`.
        """
        self.root, self.listing, self.transform, self.groups = root, listing, RandomResizedCrop(), {}
        self.images = list(range(len(listing.names)) if images is None else images)
        folders = np.array(listing.splits)[self.images]
        rows = np.array(self.images)
        self._rows = {folder: rows[folders == folder] for folder in dict.fromkeys(folders.tolist())}
        self._take_roles(split_roles(self._rows, roles))
        self.remembered_as = self.remembered_as or root / f":{self.name}"
        self.listing.load(self.remembered_as)

    def _take_roles(self, folder_of: Mapping[str, str]) -> None:
        self._folder_of = dict(folder_of)
        self.splits = tuple(split for split in ("train", "minival", "test") if split in self._folder_of)

    @classmethod
    def open(cls, argument: str, progress: Progress | None = None) -> Self:
        """The folder that the argument names, with its options."""
        place, options = options_of(argument, cls.options)
        if not place:
            raise InputError(f"the data set {cls.name} needs a path: {cls.name}:PATH")
        kind: Any = cls
        return kind(place, **options)

    @classmethod
    def folders(cls, argument: str) -> tuple[Path, ...]:
        """The folder, and those that links below it lead to."""
        try:
            root = Path(options_of(argument, cls.options)[0])
        except InputError:
            return ()
        if not argument or not root.is_dir():
            return ()
        links = (entry for _, folders, _ in walk(root, [], []) for entry in folders if entry.is_symlink())
        return (root, *(Path(os.path.realpath(link.path)) for link in links))

    @abstractmethod
    def target(self, row: int, size: tuple[int, int]) -> Target:
        """What is said of the image of a row, whose pixels are (height, width); raises UnreadableDataError, which names
        the file, where that cannot be read."""

    def class_name(self, row: int) -> str:
        """What an image counts as where images are counted: its class, if it has one."""
        return "images"

    def _beside(self, rows: Iterable[int]) -> list[int]:
        """The rows of the files that say something of these images, whose headers count too."""
        return []

    def place_of(self, folder: str) -> Path:
        """Where the images of a split are, for messages."""
        return self._places.get(folder, self.root / folder)

    def _hint(self, split: str) -> str:
        """What to do about a split that is not there."""
        alone = split == "train" and self.splits == ("test",)
        return "; to train, write ,test=0.2 behind it: a fifth is the test then, the rest train" if alone else ""

    def _leave_out_twins(self) -> None:
        """An image that stands in two splits is measured in none that another one has seen."""
        self.cleaned = True
        paths, folders = self.listing.paths, self.listing.splits
        measured = [row for row in self.images if folders[row] not in self.unlabelled]
        twins: dict[int, int] = {}
        for group in self.listing.duplicates(across=True, rows=measured):
            first = min(group, key=lambda row: (_KEEPS.index(folders[row]), row))
            twins |= {row: first for row in group if folders[row] != folders[first]}
        for folder, rows in self._rows.items():
            here = [row for row in rows.tolist() if row in twins]
            if here and len(here) == len(rows):
                said = f"the same image as {paths[twins[here[0]]]}; the splits overlap, and nothing of {folder} is left"
                raise InputError(f"{paths[here[0]]}: {said} (expected: no file in two splits)")
            self._rows[folder] = rows[~np.isin(rows, here)]
            said = [f"the same image as {paths[twins[row]]}, left out of {folder}" for row in here]
            self.skipped += tuple(map(Unreadable, [paths[row] for row in here], said))
        self.remember()

    def remember(self) -> None:
        """Keep what was found out for the next command."""
        if self.listing.changed and self.remembered_as is not None:
            self.listing.save(self.remembered_as)

    def _folder(self, split: str) -> str:
        if split in self._folder_of:
            return self._folder_of[split]
        if same := [folder for name, folder in self._folder_of.items() if is_same_split(name, split)]:
            return same[0]
        hint = "; no image of it has a label" if split in self.unlabelled else self._hint(split)
        near = did_you_mean(split, self.splits)
        said = f"has no split {split!r} (splits: {', '.join(self.splits)}){near}{hint}"
        raise InputError(f"{self.root}: {said}", field="split", value=split)

    def length(self, split: str) -> int:
        """The number of images in a split, which may be asked for by its folder's name too."""
        return len(self._rows[self._folder(split)])

    def check(self, split: str, index: int = 0, image_size: tuple[int, int] = (1, 1)) -> None:
        """As `Source.check`."""
        folder = self._folder(split)
        super().check(next(name for name in self.splits if self._folder_of[name] == folder), index, image_size)

    def _row(self, split: str, index: int, image_size: tuple[int, int] = (1, 1)) -> int:
        self.check(split, index, image_size)
        return int(self._rows[self._folder(split)][index])

    def all_captions(self, split: str) -> Iterator[str]:
        """As `Source.all_captions`."""
        if not self.captions:
            return super().all_captions(split)
        return (one for row in self._rows[self._folder(split)].tolist() for one in self.captions[row])

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        """One image, as it is seen in training or in evaluation; `name` is its path."""
        row = self._row(split, index, image_size)
        path, least = self.listing.paths[row], None
        if row in self.listing.damaged:
            raise UnreadableDataError(f"{path}: {self.listing.damaged[row]}")
        # What is measured is decoded whole.
        if split == "train" and self.reduced and not self.still:
            times = self.transform.most_enlarged
            least = times * image_size[0], times * image_size[1]
        shown = {"split": split, "index": index, "image_size": image_size, "seed": seed, "epoch": epoch}
        picture: Any = self._picture(row, least, **shown)
        return self.shown(Example(picture, self.target(row, size_of(picture)), path), **shown)

    def _picture(self, row: int, least: tuple[int, int] | None, **shown: Any) -> Picture:
        """The pixels of a row; `shown` are the arguments of `example`."""
        return read_picture(self.listing.image(row), max_pixels=self.max_pixels, least=least)

    def decoded_size(self, row: int) -> tuple[int, int]:
        """(height, width) of a row that is decoded whole, to see whether it can be; raises as `read_image`."""
        return size_of(read_image(self.listing.image(row), max_pixels=self.max_pixels))

    def example_name(self, split: str, index: int) -> str:
        """As `Source.example_name`: its path."""
        return self.listing.paths[self._row(split, index)]

    def stored_size(self, split: str, index: int) -> tuple[int, int]:
        """As `Source.stored_size`, from the file's header, which is read once."""
        row = self._row(split, index)
        if not self.listing.read[row]:
            self.listing.read_headers([row, *self._beside([row])])
        if (reason := self.header_error(row)) is not None:
            raise UnreadableDataError(f"{self.listing.paths[row]}: {reason}")
        height, width = self.listing.sizes[row].tolist()
        return height, width

    def header_error(self, row: int) -> str | None:
        """Why a file whose header was read is not to be used, as far as the header says."""
        height, width = self.listing.sizes[row].tolist()
        return self.listing.faults.get(row) or too_large(height, width, self.max_pixels)

    def hold_out(self, share: float, split: str = "minival") -> Self:
        """The same data set, of whose `train` a share between 0 and 1 is `split` and nothing else: the last of a
        permutation, the same for every run. Of data without splits, which are `test`, the rest becomes `train`. An
        image that stands in `train` twice stays there; one that cannot be read moves no other. Raises InputError where
        it has such a split of its own, or a share leaves nothing to one of them.
        """
        folder, own = self._folder_of.get("train"), self._folder_of.get(split)
        if split == "test" and self.splits == ("test",):
            folder, own = own, None
        if own is not None or folder is None:
            has = f"no split train (splits: {', '.join(self.splits)})" if own is None else f"a {split}, {own}, already"
            raise InputError(f"{self.root}: has {has} (expected no {split}={share:g})")
        rows = self._rows[folder]
        count = int(share * len(rows))
        if not 0 < count < len(rows):
            least = math.ceil(100 / max(len(rows), 1)) / 100
            said = f"holds out {count} (expected at least 1, as {split}={least:g}, and one that is left)"
            raise InputError(f"{self.root}: {split}={share:g} of {len(rows)} images of train {said}")
        last = rows[generator(f"{split}/1", 0).permutation(len(rows))[len(rows) - count :]]
        twins = [row for group in self.listing.duplicates(across=False, rows=np.sort(rows).tolist()) for row in group]
        self.remember()
        return self._held_out(np.setdiff1d(last, twins), folder, split)

    def _held_out(self, chosen: Sequence[int] | np.ndarray, folder: str, split: str) -> Self:
        """The same data set, of whose folder these rows are the split, and the others `train`."""
        made, rows = copy.copy(self), self._rows[folder]
        held = np.isin(rows, chosen)
        made._rows = self._rows | {folder: rows[~held], _HELD_OUT[split]: rows[held]}
        made._take_roles(self._folder_of | {"train": folder, split: _HELD_OUT[split]})
        return made

    @property
    def validation_split(self) -> str | None:
        """As `Source.validation_split`."""
        called = split_by_name(self._folder_of.get("test", ""))
        return super().validation_split or ("test" if called in ("val", "validation") else None)

    def fingerprint(self, split: str = "train") -> Fingerprint:
        """As `Source.fingerprint`: of all files of a split, or of all splits where there is none such; what is held out
        of `train` counts as that."""
        asked = "train" if self._folder_of.get(split) in _HELD_OUT.values() else split
        folders = [self._folder_of[asked]] if asked in self._folder_of else sorted(self._rows)
        files = self.listing
        rows = [row for row, folder in enumerate(files.splits) if folder in folders]
        files.read_headers(rows)
        self.remember()
        captions = json.dumps([self.captions[row] for row in rows]).encode() if self.captions else b""
        for name, labels in self.attribute_labels.items() if "captions" not in self.provides else ():
            captions += repr((name, self.attributes[name])).encode() + labels[rows].tobytes()
        return Fingerprint.of(
            self.name + (hashlib.sha256(captions).hexdigest() if captions else ""),
            (*self.classes, *self.pixel_classes, *self.object_classes),
            ((files.names[row], int(files.stats[row, 0]), files.samples[row].tobytes().hex()) for row in rows),
            ((int(files.stats[row, 1]), files.digests.get(row, "")) for row in rows),
        )

    def changed_contents(self, before: Fingerprint, progress: Progress | None = None) -> tuple[list[str], list[str]]:
        """As `Source.changed_contents`."""
        listing, place = self.listing, {name: row for row, name in enumerate(self.listing.names)}
        compared, unsure = dict[int, str](), list[str]()
        for (name, size, _), (modified, whole) in zip(before.files, before.stamps, strict=False):
            row = place[name]
            if int(listing.stats[row, 1]) != modified and size > SAMPLED_WHOLE:
                compared |= {row: whole} if whole else {}
                unsure += [] if whole else [name]
            elif whole:
                listing.digests.setdefault(row, whole)
        replaced = list[str]()
        for done, (row, digest) in enumerate(thread_map(listing.digest, list(compared)), start=1):
            replaced += [] if digest == compared[row] else [listing.names[row]]
            if progress is not None:
                progress(done, len(compared))
        self.remember()
        return replaced, unsure

    def summary(self) -> Summary:
        """As `Source.summary`: of a sample of at most 256 images, spread over what is trained on."""
        listing, split, digest = self.listing, self.splits[0], self.fingerprint().digest
        rows = [row for row in self._rows[self._folder_of[split]].tolist() if listing.sizes[row].all()]
        if not rows:
            raise UnreadableDataError(f"{self.root}: no image of {split} can be read")
        pixels = listing.sizes[rows].astype(np.int64).prod(axis=1)
        small = [row for row, count in zip(rows, pixels, strict=True) if count <= MOST_PIXELS] or rows
        count = min(len(small), SAMPLED)
        chosen = [small[number * len(small) // count] for number in range(count)]
        found = listing.noted("summary", digest, lambda: measure_colours([listing.image(row) for row in chosen]))
        self.remember()
        mean, std, sampled = found
        return Summary(len(rows), float(np.median(np.sqrt(pixels))), tuple(mean), tuple(std), sampled, self.provides)

    def check_readable(
        self, split: str, *, skip_unreadable: SkipUnreadable = 0, progress: Progress | None = None
    ) -> tuple[Self, tuple[Unreadable, ...]]:
        """As `Source.check_readable`; what is known of damaged pixels counts too, and so do faults of the files beside
        an image, whose headers are read with it."""
        folder, listing = self._folder(split), self.listing
        rows = self._rows[folder].tolist()
        listing.read_headers([*rows, *self._beside(rows)], progress)
        self.remember()
        faults = {row: reason for row in rows if (reason := self.header_error(row)) is not None}
        reasons = {row: listing.damaged[row] for row in rows if row in listing.damaged} | faults
        unread = [Unreadable(listing.paths[row], reasons[row]) for row in sorted(reasons)]
        made = copy.copy(self)
        found = {} if self.allowance is None else self.allowance.found
        made.allowance = SkipPolicy(skip_unreadable, {name: left for name, left in found.items() if name != split})
        place = self.place_of(self._folder_of["train"] if folder in _HELD_OUT.values() else folder)
        made.allowance.add(split, unread, f"{len(unread)} of {len(rows)} images of {place} cannot be read")
        if len(faults) == len(rows):
            raise UnreadableDataError(f"{self.root}: no image of {split} can be read")
        made._rows = self._rows | {folder: np.array([row for row in rows if row not in faults], np.int64)}
        made.skipped = tuple(dict.fromkeys((*self.skipped, *unread)))
        return made, tuple(Unreadable(listing.paths[row], reason) for row, reason in faults.items())


def split_roles(folders: Iterable[str], roles: Mapping[str, str] | None = None) -> dict[str, str]:
    """Name of a split -> its folder: the folders under their own names, and those that play a role: `roles`, whose
    folders may not be there, or None where the held-out one is `minival` or `test`."""
    found = {folder: folder for folder in folders}
    if roles is None:
        held_out = next((one for one in ("val", "validation") if one in found), "")
        role = "test" if "test" not in found else "minival"
        roles = {} if role in found else {role: held_out}
    return found | {split: folder for split, folder in roles.items() if folder in found}


def options_of(argument: str, allowed: Collection[str]) -> tuple[str, dict[str, str]]:
    """What a data set is opened by, "PLACE,option=value,...", taken apart; all is the place where none is allowed.
    Raises InputError where an option is not known, is given twice, or has no value."""
    # A pattern may hold commas too.
    found = re.search(r"(?:,[A-Za-z_]+=[^,]*)+$", argument) if allowed else None
    if found is None:
        return argument, {}
    options: dict[str, str] = {}
    for pair in found[0].split(",")[1:]:
        option, _, value = pair.partition("=")
        require_known(f"{argument}: option", option, allowed)
        if option in options or not value:
            raise InputError(f"{argument}: option {option} {'twice' if value else 'without a value'} (expected: one)")
        options[option] = value
    return argument[: found.start()], options
