"""Tar shards as WebDataset has them, read by index: wds:SHARDS."""

from __future__ import annotations

import glob
import itertools
import os
import re
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from sightline.data.folders import files_by_split, folders_in, split_by_name, split_in
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import natural_key
from sightline.data.labelled import MOST_CLASSES, ClassificationFiles, class_part, understood
from sightline.data.paired import names_in
from sightline.data.skip_policy import Progress, Unreadable
from sightline.data.stored import options_of
from sightline.data.tar_index import TarImages, index_shards
from sightline.errors import InputError

_EXPECTED = "expected: a folder of .tar files, a pattern as 'train-*.tar', or braces as 'train-{0000..0013}.tar'"


class WebDataset(ClassificationFiles):
    """Samples in tar archives: SHARDS is a folder, a pattern, or braces as `{0000..0013}` or `{a,b}`.

    A sample is the members of one key, their name up to the first dot behind the last slash: an image, and `cls`, the
    number of its class in ASCII, or `json`, whose field `label` or `cls` is that number. `SHARDS,image=EXT,label=NAME`
    chooses others: NAME is the extension of a member, or a field of `json`. What NAME names, and the field `label`, may
    be words too, or true and false, where most labels are (`understood`). Captions are the lines of `txt`, or the field
    `caption` or `captions` of `json`; `caption=NAME` chooses others. The classes are called as `classes.txt` or
    `classnames.txt` beside the shards says, one a line; else by those words, or by numbers up to the highest.

    The split is a word of a shard's name (`train-0.tar`, `pets-val-0.tar`), where each has one, or the folder of a
    shard (`DIR/train/0.tar`), and is called as `imagefolder` calls it; else all shards are one split, `test`. A
    compressed archive, in which nothing can be sought, cannot be read; nor can a sample without an image or a label,
    with two, or of a shard that was cut off.
    """

    name: ClassVar[str] = "wds"
    options: ClassVar[tuple[str, ...]] = ("image", "label", "caption")

    def __init__(self, argument: str, progress: Progress | None = None) -> None:
        """List what is in the shards; `progress` and errors are those of `Source.open` and `index_shards`."""
        place, options = options_of(argument, self.options)
        paths = _find(place)
        root = self.root = _root(place, paths)
        self._unnamed = [name for name in map(os.path.basename, paths) if split_in(name) is None][:1]
        # A name of no file; other options see other things in the same shards.
        self.remembered_as = Path(os.path.abspath(root)) / f":wds:{argument}"
        inside = dict.fromkeys(map(os.path.dirname, glob.glob(os.path.join(glob.escape(place), "*", "*.tar"))))
        others = (folder for folder in inside if split_by_name(os.path.basename(folder)) is None)
        self.skipped = tuple(Unreadable(folder, "not a split") for folder in others)
        split_of = {path: split for split, own in files_by_split(paths, "test").items() for path in own}
        found = index_shards(list(split_of), self.remembered_as / "samples", **options, progress=progress)
        self.skipped += tuple(itertools.starmap(Unreadable, (one for shard in found for one in shard.skipped)))
        where = {path: os.path.relpath(path, root) for path in split_of}
        rows = [(split_of[shard.path], shard, sample) for shard in found for sample in shard.samples]
        if not rows:
            expected = "KEY.jpg with KEY.cls, KEY.txt or KEY.json"
            raise InputError(f"{root}: no samples in {len(found)} shards (expected: {expected})")
        names = [root / name for name in ("classes.txt", "classnames.txt") if (root / name).exists()]
        classes, labels, faults = understood(
            [sample.label for _, _, sample in rows],
            np.array([split for split, _, _ in rows]),
            f"wds:{argument}",
            names_in(names[0], MOST_CLASSES) if names else (),
        )
        listing = ImageIndex(
            [
                f"{split}/{class_part(classes, label)}/{where[shard.path]}:{sample.name}"
                for (split, shard, sample), label in zip(rows, labels, strict=True)
            ],
            [f"{shard.path}:{sample.name}" for _, shard, sample in rows],
            np.array([(sample.size, *shard.stamp[1:]) for _, shard, sample in rows], np.int64),
            TarImages(found),
        )
        own = {row: one.fault for row, (_, _, one) in enumerate(rows) if one.fault and labels[row] < 0}
        captions = [sample.captions for _, _, sample in rows]
        super().__init__(root, classes, listing, labels, own | faults, captions, "caption" in options)

    @classmethod
    def open(cls, argument: str, progress: Progress | None = None) -> Self:
        """The shards that the argument names."""
        if not argument:
            raise InputError(f"the data set wds needs shards: wds:SHARDS ({_EXPECTED})")
        return cls(argument, progress)

    @classmethod
    def folders(cls, argument: str) -> tuple[Path, ...]:
        """The folder; of a pattern the shards themselves, beside which anything may stand."""
        try:
            shards, _ = options_of(argument, cls.options)
            return (Path(shards),) if os.path.isdir(shards) else tuple(map(Path, _find(shards)))
        except InputError:
            return ()

    def _hint(self, split: str) -> str:
        said = "".join(f" (of {name} no word is a split's)" for name in self._unnamed)
        return f"{super()._hint(split)}; or call shards train-0000.tar, all of them{said}" if split == "train" else ""


def _find(shards: str) -> list[str]:
    """The archives that are meant, in natural order."""
    if os.path.isdir(shards):
        inside = [os.path.join(shards, name) for name in folders_in(shards) if split_by_name(name)]
        files = [entry.path for folder in (shards, *inside) for entry in os.scandir(folder)]
        # A compressed one is said to be none.
        found = [path for path in files if re.search(r"\.(tar|t(ar\.)?(gz|bz2|xz|zst|lz4))$", path)]
    else:
        found = []
        for word in [shards] if os.path.isfile(shards) else _expanded(shards):
            matches = glob.glob(word) if glob.has_magic(word) and not os.path.lexists(word) else [word]
            if not matches or not os.path.isfile(matches[0]):
                raise InputError(f"{word}: no such file ({_EXPECTED})")
            found += matches
    if not found:
        raise InputError(f"{shards}: no .tar files ({_EXPECTED})")
    return sorted(dict.fromkeys(found), key=natural_key)


def _expanded(word: str) -> list[str]:
    """The words that braces stand for, as a shell makes them."""
    before, brace, rest = word.partition("{")
    inside, end, behind = rest.partition("}")
    if not (brace and end):
        return [word]
    choices = inside.split(",")
    if numbers := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", inside):
        low, high = map(int, numbers.groups())
        if not 0 <= high - low < 100_000:
            raise InputError(f"{word}: {{{inside}}} (expected: two numbers, rising, as {{0000..0013}})")
        width = max(map(len, numbers.groups())) if any(re.match("0.", one) for one in numbers.groups()) else 0
        choices = [str(number).zfill(width) for number in range(low, high + 1)]
    return [f"{before}{choice}{more}" for choice in choices for more in _expanded(behind)]


def _root(shards: str, found: list[str]) -> Path:
    """The folder that all shards are in, above those of splits."""
    if os.path.isdir(shards):
        return Path(shards)
    root = Path(os.path.commonpath({os.path.dirname(path) or os.curdir for path in found}))
    return root.parent if split_by_name(root.name) else root
