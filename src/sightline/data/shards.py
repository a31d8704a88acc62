"""Samples in tar archives: where each image begins, and its label, found in one pass over the headers; remembered."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sightline.data.image_index import keep_columns, recall_columns, thread_map
from sightline.data.image_list import IMAGE_SUFFIXES, NO_LABEL, stamp_of
from sightline.data.labelled import BAD_LABEL, MOST_CLASSES
from sightline.data.scanning import scanning
from sightline.data.skip_policy import Unreadable
from sightline.errors import InaccessibleDataError, InputError
from sightline.io.read import CONFIGURATION, parse_json

_IMAGES = tuple(suffix[1:] for suffix in IMAGE_SUFFIXES)
# What a compressed file begins with: nothing can be sought in it.
_COMPRESSED = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"
}  # fmt: skip
_BLOCK = tarfile.BLOCKSIZE
_THREADS = 4
_COLUMNS = ("offsets", "sizes", "labels")
Stamp = tuple[int, int, int]


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
        path: of the archive; stamp: its size and times, as `ImageIndex.stats`.
        names: of the images in it; offsets, sizes: of their bytes.
        labels: `NO_LABEL` where there is none, `BAD_LABEL` where it is no number; words: row -> the word that it is.
        lost: row -> why its image cannot be read; unlabelled: row -> why its label is no number.
        skipped: what is no part of a sample.
    """

    path: str
    stamp: Stamp
    names: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    words: dict[int, str] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    unlabelled: dict[int, str] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, place: tuple[int, int], label: int | str, *, lost: str = "", unlabelled: str = "") -> None:
        """One more sample."""
        row = len(self.names)
        self.names.append(name)
        self.offsets.append(place[0])
        self.sizes.append(place[1])
        self.labels.append(BAD_LABEL if isinstance(label, str) else label)
        if isinstance(label, str):
            self.words[row] = label
        if lost:
            self.lost[row] = lost
        elif unlabelled:
            self.unlabelled[row] = unlabelled

    def said(self) -> list[int | str]:
        """The label of each sample, a number or a word."""
        return [self.words.get(row, label) for row, label in enumerate(self.labels)]

    def passed_over(self) -> Iterator[Unreadable]:
        """What is no part of a sample, as messages name it."""
        return (Unreadable(f"{self.path}:{name}" if name else self.path, reason) for name, reason in self.skipped)


@dataclass(eq=False)
class _Sample:
    """The members of one key: by extension where their bytes are, and of those that may say the label what they say and
    why that is no number."""

    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    said: dict[str, tuple[int | str, str]] = field(default_factory=dict)
    fault: str = ""


def index_shards(paths: Sequence[str], wanted: SampleFields, remembered_as: Path) -> list[TarShard]:
    """What is in each archive: one pass over its headers, but for those whose size and times are as remembered.

    Raises:
        InputError: an archive is compressed.
        UnreadableDataError: the system does not let one be read.
    """
    known = _recall(remembered_as)
    stamps = {path: stamp_of(Path(path)) for path in paths}
    found = {path: shard for path, shard in known.items() if stamps.get(path) == shard.stamp and shard.stamp[0] >= 0}
    new = [path for path in stamps if path not in found]
    if new:
        with scanning("listing shards", len(new)) as done:
            for path, shard in thread_map(lambda path: _scan(path, stamps[path], wanted), new, _THREADS):
                found[path] = shard
                done(1)
    if new or len(known) != len(found):
        _keep(remembered_as, [found[path] for path in stamps])
    return [found[path] for path in stamps]


def _scan(path: str, stamp: Stamp, wanted: SampleFields) -> TarShard:
    shard = TarShard(path, stamp)
    try:
        with open(path, "rb") as file:
            refuse_compressed(path, file.read(8))
            file.seek(0)
            samples: dict[str, _Sample] = {}
            broken = _members(file, shard, samples, wanted)
    except OSError as error:
        raise InaccessibleDataError(f"{path}: {error.strerror or error}") from None
    for key, sample in samples.items():
        _take(shard, key, sample, wanted)
    if broken is not None:
        # One image that cannot be read stands for what nobody can count.
        shard.add(f"byte {broken}", (broken, 0), NO_LABEL, lost="no archive from here on: what stood behind is lost")
    if not shard.names:
        shard.skipped.append(("", "an archive without samples"))
    return shard


def refuse_compressed(path: str, head: bytes) -> None:
    """Refuse an archive that begins as a compressed one does."""
    for begins, kind in _COMPRESSED.items():
        if head.startswith(begins):
            raise InputError(
                f"{path}: is compressed ({kind}), and nothing can be sought in it (expected: a plain tar; images are "
                f"compressed already)"
            )


def _members(file: io.BufferedReader, shard: TarShard, samples: dict[str, _Sample], wanted: SampleFields) -> int | None:
    """Add the members of an archive to their samples.

    Returns:
        The place from which on it is damaged, or None.
    """
    size, place = os.fstat(file.fileno()).st_size, 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (member := archive.next()) is not None:
                # It would keep every one.
                archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # the stubs lack it
                if archive.offset < member.offset_data:
                    # A size below 0, which leads back to headers that were read.
                    return member.offset
                place = archive.offset
                _add(file, member, size, shard, samples, wanted)
                if place > size:
                    # What lies beyond all that a file can hold cannot be sought either.
                    break
    except OSError:
        raise
    # A damaged header raises nearly anything, or looks like an end.
    except Exception:
        if place <= size:
            return place
    # Of what is cut off, its sample says so.
    if place < size:
        file.seek(place)
        block = file.read(_BLOCK)
        return place if block.strip(b"\0") or len(block) < _BLOCK else None
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
    elif extension == wanted.number or (extension == "json" and wanted.number not in sample.said):
        if member.size > CONFIGURATION:
            sample.said[extension] = BAD_LABEL, f"has {member.size} bytes (expected: at most {CONFIGURATION})"
            return
        file.seek(member.offset_data)
        content = file.read(member.size)
        try:
            said = _text(content, wanted) if extension == wanted.number else _field(content, wanted)
        except ValueError as error:
            said = BAD_LABEL, " ".join(str(error).split())
        sample.said[extension] = said


def _text(content: bytes, wanted: SampleFields) -> tuple[int | str, str]:
    """The label that a member of text says, and why that is no number."""
    said = content.strip()
    if re.fullmatch(rb"[0-9]{1,18}", said) and int(said) < MOST_CLASSES:
        return int(said), ""
    expected = "of a class, in ASCII" if wanted.label else f"of a class, in ASCII; label={wanted.number} takes words"
    reason = f"{repr(content[:20])[1:]} (expected: the number {expected})"
    if said in (b"", b"-1"):
        return NO_LABEL, reason
    return said.decode() if wanted.label else BAD_LABEL, reason


def _field(content: bytes, wanted: SampleFields) -> tuple[int | str, str]:
    """As `_text`, of a field of JSON."""
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
    told = next((one for one in (wanted.number, "json") if one in sample.said), None)
    members = ", ".join(sample.places)
    if told is None:
        label, expected = NO_LABEL, f"{key}.{wanted.number} or {key}.json); label=EXT chooses"
        unlabelled = f"no label (members: {members}; expected: {expected}"
    else:
        label, reason = sample.said[told]
        unlabelled = reason and f"{key}.{told}: {reason}"
    images = [
        extension for extension in sample.places if extension in ((wanted.image.lower(),) if wanted.image else _IMAGES)
    ]
    if not images:
        expected = f"{key}.{wanted.image or 'jpg'}" + ("" if wanted.image else ", png, webp or another")
        dotted = any(extension.endswith(tuple(f".{one}" for one in _IMAGES)) for extension in sample.places)
        hint = "; a key ends at the first dot of a name: rename members that have others" if dotted else ""
        said = f"no image (members: {members}; expected: {expected}{hint})"
        shard.add(key, (0, 0), label, lost=sample.fault or said)
        return
    image, others = images[0], ", ".join(f"{key}.{one}" for one in images[1:])
    lost = sample.fault or (f"and {others} are images of one key (image=EXT chooses)" if others else "")
    shard.add(f"{key}.{image}", sample.places[image], label, lost=lost, unlabelled=unlabelled)


def _recall(remembered_as: Path) -> dict[str, TarShard]:
    kept = recall_columns(remembered_as, _COLUMNS)
    if kept is None:
        return {}
    about, names, columns = kept
    found: dict[str, TarShard] = {}
    try:
        offsets, sizes, labels = (columns[name].tolist() for name in _COLUMNS)
        start = 0
        for path, stamp, count, words, lost, unlabelled, skipped in about["shards"]:
            part = slice(start, start + count)
            told = [{int(row): str(said) for row, said in one.items()} for one in (words, lost, unlabelled)]
            passed_over = [(str(name), str(reason)) for name, reason in skipped]
            size, modified, changed = map(int, stamp)
            found[str(path)] = TarShard(
                str(path), (size, modified, changed), names[part], offsets[part], sizes[part], labels[part],
                words=told[0], lost=told[1], unlabelled=told[2], skipped=passed_over,
            )  # fmt: skip
            start += count
        return found if start == len(names) else {}
    # A damaged file raises nearly anything; what it said is found out anew.
    except Exception:
        return {}


def _keep(remembered_as: Path, shards: Sequence[TarShard]) -> None:
    about = {
        "shards": [
            (shard.path, shard.stamp, len(shard.names), shard.words, shard.lost, shard.unlabelled, shard.skipped)
            for shard in shards
        ]
    }
    names = [name for shard in shards for name in shard.names]
    columns = {
        column: np.array([value for shard in shards for value in getattr(shard, column)], np.int64)
        for column in _COLUMNS
    }
    keep_columns(remembered_as, about, names, columns)
