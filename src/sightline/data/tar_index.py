"""Samples in tar archives: where each image begins, and its label, found in one pass over the headers and remembered;
images are read where they begin."""

from __future__ import annotations

import io
import itertools
import os
import re
import tarfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.encoded import ByteRange, EncodedImage
from sightline.data.image_index import Stamp, keep, recall, stamp_of, thread_map
from sightline.data.image_list import IMAGE_SUFFIXES, NO_LABEL
from sightline.data.labelled import BAD_LABEL, MOST_CLASSES
from sightline.data.skip_policy import Progress
from sightline.errors import InaccessibleDataError, UnreadableDataError
from sightline.io.read import CONFIGURATION, parse_json

_IMAGES = tuple(suffix[1:] for suffix in IMAGE_SUFFIXES)
_THREADS = 4
# Shards that a process keeps open.
_OPEN = 128


@dataclass(frozen=True)
class SampleFields:
    """What a sample is made of.

    Attributes:
        image: the extension of its image; None: the only one that is an image's.
        label: the extension of a member that holds a whole number or a word, or the field of its `json` that does;
            None: `cls`, a number, else the field `label`, or `cls` with a number.
    """

    image: str | None = None
    label: str | None = None

    @property
    def number(self) -> str:
        """The extension of what holds nothing but the label; of members these are in lower case."""
        return (self.label or "cls").lower()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of `json` of which the first that is there is the label."""
        return ("label", "cls") if self.label is None else (self.label,)


@dataclass(eq=False)
class TarShard:
    """What is in an archive, a row a sample, in the order of the archive.

    Attributes:
        path: of the archive; stamp: its size and times, as `stamp_of`.
        names: of the images in it; offsets, sizes: of their bytes.
        labels: a number or a word; `NO_LABEL` where there is none, `BAD_LABEL` where it is neither.
        lost: row -> why its image cannot be read; unlabelled: row -> why its label is no number.
        skipped: what is no part of a sample, with the reason.
    """

    path: str
    stamp: Stamp
    names: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    labels: list[int | str] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)
    unlabelled: dict[int, str] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, place: tuple[int, int], label: int | str, lost: str = "", unlabelled: str = "") -> None:
        """One more sample."""
        if lost:
            self.lost[len(self.names)] = lost
        elif unlabelled:
            self.unlabelled[len(self.names)] = unlabelled
        self.names.append(name)
        self.offsets.append(place[0])
        self.sizes.append(place[1])
        self.labels.append(label)


def by_row(shards: Sequence[TarShard], told: str) -> dict[int, str]:
    """What is told of some rows of some shards, `lost` or `unlabelled`, by their rows in all of them."""
    starts = itertools.accumulate((len(shard.names) for shard in shards), initial=0)
    parts = zip(starts, shards, strict=False)
    return {start + row: reason for start, shard in parts for row, reason in getattr(shard, told).items()}


def index_shards(
    paths: Sequence[str], wanted: SampleFields, remembered_as: Path, progress: Progress | None = None
) -> list[TarShard]:
    """What is in each archive: one pass over its headers, but for those whose size and times are as remembered.

    Args:
        progress: called with (archives listed, archives to list).

    Raises:
        UnreadableDataError: the system does not let one be read.
    """
    stamps = {path: stamp_of(path) for path in paths}
    known = _recalled(remembered_as)
    found = {path: shard for path, shard in known.items() if stamps.get(path) == shard.stamp}
    if new := [path for path in stamps if path not in found]:
        scanned = thread_map(lambda path: _scan(path, stamps[path], wanted), new, _THREADS)
        for done, (path, shard) in enumerate(scanned, start=1):
            found[path] = shard
            if progress is not None:
                progress(done, len(new))
    shards = [found[path] for path in stamps]
    if new or len(known) != len(found):
        keep(remembered_as, {"shards": list(map(asdict, shards))}, {})
    return shards


def _recalled(remembered_as: Path) -> dict[str, TarShard]:
    kept, found = recall(remembered_as), dict[str, TarShard]()
    for one in kept[0]["shards"] if kept else ():
        lost, unlabelled = ({int(row): reason for row, reason in one[told].items()} for told in ("lost", "unlabelled"))
        own = one | {"stamp": tuple(one["stamp"]), "lost": lost, "unlabelled": unlabelled}
        found[one["path"]] = TarShard(**own)
    return found


def _scan(path: str, stamp: Stamp, wanted: SampleFields) -> TarShard:
    shard, samples = TarShard(path, stamp), dict[str, _Sample]()
    try:
        with open(path, "rb") as file:
            broken = _members(file, shard, samples, wanted)
    except OSError as error:
        raise InaccessibleDataError(f"{path}: {error.strerror or error}") from None
    for key, sample in samples.items():
        _take(shard, key, sample, wanted)
    if broken is not None:
        # One image that cannot be read stands for what nobody can count.
        shard.add(f"byte {broken}", (broken, 0), NO_LABEL, "no archive from here on: what stood behind is lost")
    if not shard.names:
        shard.skipped.append(("", "an archive without samples"))
    return shard


@dataclass(eq=False)
class _Sample:
    """The members of one key: by extension where their bytes are, and the content of those that may say the label."""

    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    fault: str = ""


def _members(file: io.BufferedReader, shard: TarShard, samples: dict[str, _Sample], wanted: SampleFields) -> int | None:
    """Add the members of an archive to their samples; returns the place from which on it is damaged, or None."""
    size, place = os.fstat(file.fileno()).st_size, 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (member := archive.next()) is not None:
                # It would keep every one.
                archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # the stubs lack it
                if archive.offset < member.offset_data:
                    # A size below 0 leads back to headers that were read, without end.
                    return member.offset
                place = archive.offset
                _add(file, member, size, shard, samples, wanted)
    except OSError:
        raise
    # A damaged header raises nearly anything, or looks like an end.
    except Exception:
        if place <= size:
            return place
    # Of what is cut off, its sample says so.
    if place < size:
        file.seek(place)
        block = file.read(tarfile.BLOCKSIZE)
        return place if block.strip(b"\0") or len(block) < tarfile.BLOCKSIZE else None
    shard.skipped.append(("", "ends without the mark of its end: what stood behind, if anything did, is lost"))
    return None


def _add(
    file: io.BufferedReader,
    member: tarfile.TarInfo,
    size: int,
    shard: TarShard,
    samples: dict[str, _Sample],
    wanted: SampleFields,
) -> None:
    folder, slash, base = member.name.rpartition("/")
    stem, dot, extension = base.partition(".")
    if member.isdir() or re.fullmatch("__[^/]*__", member.name.partition("/")[0]):
        return
    if not (stem and dot and extension) or not member.isreg() or member.issparse():
        reason = "hidden" if dot and not stem else "no key and extension" if member.isreg() else "no regular member"
        shard.skipped.append((member.name, reason))
        return
    sample, extension = samples.setdefault(f"{folder}{slash}{stem}", _Sample()), extension.lower()
    if extension in sample.places:
        sample.fault = sample.fault or f"the key is there twice, with two members {base}"
        return
    sample.places[extension] = (member.offset_data, min(member.size, size))
    if member.offset_data + member.size > size:
        sample.fault = f"the shard ends inside of {base}: what stood behind is lost"
    elif extension == wanted.number or (extension == "json" and wanted.number not in sample.texts):
        file.seek(member.offset_data)
        sample.texts[extension] = file.read(min(member.size, CONFIGURATION + 1))


def _label(extension: str, content: bytes, wanted: SampleFields) -> tuple[int | str, str]:
    """The label that a member says, and why that is no number."""
    if len(content) > CONFIGURATION:
        return BAD_LABEL, f"is larger than {CONFIGURATION} bytes"
    try:
        return _text(content, wanted) if extension == wanted.number else _field(content, wanted)
    except ValueError as error:
        return BAD_LABEL, " ".join(str(error).split())


def _text(content: bytes, wanted: SampleFields) -> tuple[int | str, str]:
    """As `_label`, of a member that holds nothing else."""
    said = content.strip()
    if re.fullmatch(rb"[0-9]{1,18}", said) and int(said) < MOST_CLASSES:
        return int(said), ""
    expected = "of a class, in ASCII" if wanted.label else f"of a class, in ASCII; label={wanted.number} takes words"
    reason = f"{repr(content[:20])[1:]} (expected: the number {expected})"
    if said in (b"", b"-1"):
        return NO_LABEL, reason
    return said.decode() if wanted.label else BAD_LABEL, reason


def _field(content: bytes, wanted: SampleFields) -> tuple[int | str, str]:
    """As `_label`, of a field of JSON."""
    try:
        value = parse_json(content)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    name = next((one for one in wanted.fields if one in value), None)
    if name is None:
        there = ", ".join(map(str, list(value)[:5])) or "none"
        return NO_LABEL, f"no field {' or '.join(wanted.fields)} (fields: {there}; label=FIELD chooses)"
    label = value[name]
    reason = f"{name} {str(label)[:20]!r} (expected: the number of a class)"
    if isinstance(label, bool | str) and (wanted.label or name == "label"):
        return label.strip() if isinstance(label, str) else str(label).lower(), reason
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < MOST_CLASSES:
        return label, ""
    return NO_LABEL if label in (None, -1) else BAD_LABEL, reason


def _take(shard: TarShard, key: str, sample: _Sample, wanted: SampleFields) -> None:
    """Add a sample to its shard, and why it cannot be read where it cannot."""
    told = next((one for one in (wanted.number, "json") if one in sample.texts), None)
    members = ", ".join(sample.places)
    if told is None:
        label, expected = NO_LABEL, f"{key}.{wanted.number} or {key}.json); label=EXT chooses"
        unlabelled = f"no label (members: {members}; expected: {expected}"
    else:
        label, reason = _label(told, sample.texts[told], wanted)
        unlabelled = reason and f"{key}.{told}: {reason}"
    known = (wanted.image.lower(),) if wanted.image else _IMAGES
    images = [extension for extension in sample.places if extension in known]
    if not images:
        expected = f"{key}.{wanted.image or 'jpg'}" + ("" if wanted.image else ", png, webp or another")
        dotted = any(extension.endswith(tuple(f".{one}" for one in _IMAGES)) for extension in sample.places)
        hint = "; a key ends at the first dot of a name: rename members that have others" if dotted else ""
        said = f"no image (members: {members}; expected: {expected}{hint})"
        shard.add(key, (0, 0), label, sample.fault or said)
        return
    image, others = images[0], ", ".join(f"{key}.{one}" for one in images[1:])
    lost = sample.fault or (f"and {others} are images of one key (image=EXT chooses)" if others else "")
    shard.add(f"{key}.{image}", sample.places[image], label, lost, unlabelled)


class _Handle:
    """An open file, until nobody holds it any more."""

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class TarImages:
    """The images of some shards, a row each; a process opens a shard when it reads in it first."""

    def __init__(self, shards: Sequence[TarShard]) -> None:
        self._paths, self._stamps = [shard.path for shard in shards], [shard.stamp for shard in shards]
        counts = [len(shard.names) for shard in shards]
        self._shard = np.repeat(np.arange(len(shards), dtype=np.int32), counts)
        offsets, sizes = ([one for shard in shards for one in getattr(shard, name)] for name in ("offsets", "sizes"))
        self._places, self._lost = np.array([offsets, sizes], np.int64), by_row(shards, "lost")
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_open", "_lock")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._open: dict[int, _Handle] = {}
        self._lock = threading.Lock()

    def __call__(self, row: int, name: str) -> EncodedImage:
        offset, size = self._places[:, row].tolist()
        return _Member(name, self, int(self._shard[row]), offset, size, self._lost.get(row))

    def handle(self, shard: int) -> _Handle:
        """An open shard.

        Raises:
            UnreadableDataError: it is not the one that was scanned.
            OSError: the system does not let it be opened.
        """
        with self._lock:
            if (found := self._open.get(shard)) is not None:
                return found
            while len(self._open) >= _OPEN:
                del self._open[next(iter(self._open))]
            handle = _Handle(self._paths[shard])
            status = os.fstat(handle.number)
            if (status.st_size, status.st_mtime_ns) != self._stamps[shard][:2]:
                raise InaccessibleDataError(
                    f"{self._paths[shard]}: changed since its members were listed; start the command again"
                )
            self._open[shard] = handle
            return handle


class _Member(EncodedImage):
    """An image in a shard."""

    def __init__(self, name: str, shards: TarImages, shard: int, offset: int, size: int, lost: str | None) -> None:
        super().__init__(name)
        self._shards, self._shard, self._offset, self._size, self._lost = shards, shard, offset, size, lost

    def open(self) -> io.BufferedReader:
        if self._lost is not None or self._size == 0:
            raise UnreadableDataError(f"{self.name}: {self._lost or 'the member is empty'}")
        try:
            handle = self._shards.handle(self._shard)
        except InaccessibleDataError as error:
            raise InaccessibleDataError(f"{self.name}: {error}") from None
        # The handle lives as long as what reads from it.
        return ByteRange.buffered(self._size, lambda place, count: os.pread(handle.number, count, self._offset + place))
