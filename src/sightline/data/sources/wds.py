"""Tar shards as WebDataset has them, read by index: wds:SHARDS."""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from sightline.data.folders import folders_in
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import natural_key
from sightline.data.labelled import MOST_CLASSES, ClassificationFiles, class_part, understood
from sightline.data.paired import names_in
from sightline.data.skip_policy import Progress, Unreadable
from sightline.data.splits import files_by_split, split_called, split_in
from sightline.data.stored import options_of
from sightline.data.tar_index import SampleFields, TarImages, by_row, index_shards
from sightline.errors import InputError

_CLASSES = ("classes.txt", "classnames.txt")
_COMPRESSED = (".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".tzst", ".lz4")
_MOST_SHARDS = 100_000
_EXPECTED = "expected: a folder of .tar files, a pattern as 'train-*.tar', or braces as 'train-{0000..0013}.tar'"


class WebDataset(ClassificationFiles):
    """Samples in tar archives: SHARDS is a folder, a pattern, or braces as `{0000..0013}` or `{a,b}`.

    A sample is the members of one key, their name up to the first dot behind the last slash: an image, and `cls`, the
    number of its class in ASCII, or `json`, whose field `label` or `cls` is that number. `SHARDS,image=EXT,label=NAME`
    chooses others: NAME is the extension of a member with a number, or a field of `json`. What NAME names, and the
    field `label`, may be words too, or true and false, where most labels are (`understood`). The classes are called as
    `classes.txt` or `classnames.txt` beside the shards says, one a line; else by those words, or by their numbers, up
    to the highest that is trained on.

    The split is a word of a shard's name (`train-0.tar`, `pets-val-0.tar`), where each has one, or the folder of a
    shard (`DIR/train/0.tar`), and is called as `imagefolder` calls it; else all shards are one split, `test`. Archives
    are plain: in a compressed one nothing can be sought. The members are listed once, which is remembered, and asked
    for again where a shard's size or times changed; images are then read where they begin: passes are exact, the
    shuffle is of all images, and a run goes on where it was. A sample without an image or a label, with two, or of a
    shard that was cut off, is an image that cannot be read.
    """

    name: ClassVar[str] = "wds"
    options: ClassVar[tuple[str, ...]] = ("image", "label", "streaming")

    def __init__(self, argument: str, progress: Progress | None = None) -> None:
        """List what is in the shards; `progress` as `Source.open`.

        Raises:
            InputError: there is no shard, one is called as a compressed one, or an option is not known.
            UnreadableDataError: the system does not let one be read.
        """
        shards, options = options_of(argument, self.options)
        if "streaming" in options:
            raise InputError(
                f"wds:{argument}: shards are not streamed but read by index, for exact passes, a shuffle of all images "
                f"and a run that goes on where it was; leave streaming out"
            )
        paths = _find(shards)
        root, self._argument = _root(shards, paths), argument
        split_of = {path: split for split, own in files_by_split(paths, "test").items() for path in own}
        inside = dict.fromkeys(map(os.path.dirname, glob.glob(os.path.join(glob.escape(shards), "*", "*.tar"))))
        others = (folder for folder in inside if split_called(os.path.basename(folder)) is None)
        self.skipped = tuple(Unreadable(folder, "not a split") for folder in others)
        wanted = SampleFields(options.get("image"), options.get("label"))
        found = index_shards(list(split_of), wanted, self._place_of(root, "labels"), progress)
        for shard in found:
            passed = ((f"{shard.path}:{name}" if name else shard.path, reason) for name, reason in shard.skipped)
            self.skipped += tuple(itertools.starmap(Unreadable, passed))
        if not any(shard.names for shard in found):
            raise InputError(f"{root}: no samples in {len(found)} shards (expected: KEY.jpg with KEY.cls or KEY.json)")
        said = [label for shard in found for label in shard.labels]
        splits = np.repeat([split_of[shard.path] for shard in found], [len(shard.names) for shard in found])
        file = next((root / name for name in _CLASSES if os.path.lexists(root / name)), None)
        called = () if file is None else names_in(file, "the name of a class a line", MOST_CLASSES)
        classes, labels, unknown = understood(said, splits, f"wds:{argument}", called)
        names, paths, stats = list[str](), list[str](), list[tuple[int, ...]]()
        for shard in found:
            split, where = split_of[shard.path], os.path.relpath(shard.path, root)
            for name, size in zip(shard.names, shard.sizes, strict=True):
                names.append(f"{split}/{class_part(classes, labels[len(names)])}/{where}:{name}")
                paths.append(f"{shard.path}:{name}")
                stats.append((size, *shard.stamp[1:]))
        listing = ImageIndex(names, paths, np.array(stats, np.int64), TarImages(found))
        faults = by_row(found, "lost") | by_row(found, "unlabelled")
        faults = {row: reason for row, reason in faults.items() if labels[row] < 0}
        super().__init__(root, classes, listing, labels, faults | unknown)

    def _place_of(self, root: Path, what: str) -> Path:
        # A name of no file; other options see other things in the same shards.
        return Path(os.path.abspath(root)) / f":wds:{what}:{self._argument}"

    @property
    def _remembered_as(self) -> Path:
        return self._place_of(self.root, "images")

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
        if split != "train":
            return ""
        names = map(os.path.basename, _find(options_of(self._argument, self.options)[0]))
        unnamed = [f" (of {name} no word is a split's)" for name in names if split_in(name) is None]
        return f"; to train, call shards train-0000.tar, all of them{''.join(unnamed[:1])}"


def _find(shards: str) -> list[str]:
    """The archives that are meant, in natural order."""
    found: list[str] = []
    if os.path.isdir(shards):
        inside = [os.path.join(shards, name) for name in folders_in(shards) if split_called(name)]
        files = [entry.path for folder in (shards, *inside) for entry in os.scandir(folder)]
        found = [path for path in files if path.endswith((".tar", *_COMPRESSED))]
        if not found:
            raise InputError(f"{shards}: no .tar files in this folder ({_EXPECTED})")
    else:
        for word in [shards] if os.path.isfile(shards) else _expanded(shards):
            matches = glob.glob(word) if glob.has_magic(word) and not os.path.lexists(word) else [word]
            if not matches:
                raise InputError(f"{word}: no file matches this pattern")
            if not os.path.isfile(matches[0]):
                raise InputError(f"{matches[0]}: no such file ({_EXPECTED})")
            found += matches
    if packed := [path for path in found if path.endswith(_COMPRESSED)]:
        raise InputError(
            f"{min(packed)}: is compressed, and nothing can be sought in it (expected: a plain tar; images are "
            f"compressed already)"
        )
    return sorted(dict.fromkeys(found), key=natural_key)


def _expanded(word: str) -> Iterator[str]:
    """The words that braces stand for, as a shell makes them."""
    parts: list[list[str]] = []
    for literal, inside in re.findall(r"([^{}]+)|\{([^{}]*)\}", word):
        if literal:
            parts.append([literal])
        elif numbers := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", inside):
            low, high = map(int, numbers.groups())
            padded = any(len(number) > 1 and number.startswith("0") for number in numbers.groups())
            width = max(map(len, numbers.groups())) if padded else 0
            if not 0 <= high - low < _MOST_SHARDS:
                raise InputError(f"{word}: {{{inside}}} (expected: two numbers, rising, as {{0000..0013}})")
            parts.append([str(number).zfill(width) for number in range(low, high + 1)])
        else:
            parts.append(inside.split(","))
    if math.prod(map(len, parts)) > _MOST_SHARDS:
        raise InputError(f"{word}: stands for more than {_MOST_SHARDS} shards")
    return map("".join, itertools.product(*parts))


def _root(shards: str, found: list[str]) -> Path:
    """The folder that all shards are in, above those of splits."""
    if os.path.isdir(shards):
        return Path(shards)
    root = Path(os.path.commonpath({os.path.dirname(path) or os.curdir for path in found}))
    return root.parent if split_called(root.name) else root
