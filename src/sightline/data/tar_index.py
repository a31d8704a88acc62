"""Samples in tar archives: where each image begins, its label and its captions, found in one pass over the headers and
remembered; images are read where they begin."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from sightline.data.image_file import ByteRange, EncodedImage
from sightline.data.image_index import NOT_A_FILE, Stamp, keep, recall, stamp_of, thread_map
from sightline.data.image_list import IMAGE_SUFFIXES, NO_LABEL
from sightline.data.labelled import BAD_LABEL, MOST_CLASSES, captions_in
from sightline.data.skip_policy import Progress
from sightline.errors import InaccessibleDataError, UnreadableDataError
from sightline.io.read import CONFIGURATION, parse_json

# What tarfile raises of a damaged header; or it looks like an end.
_DAMAGE = (tarfile.TarError, ValueError, LookupError, ArithmeticError, RuntimeError)


class TarSample(NamedTuple):
    """A sample of an archive: the member that is its image, where its bytes are, of size 0 where they cannot be read, a
    number, a word, `NO_LABEL` or `BAD_LABEL`, why the image cannot be read, or else why the label is no number, and its
    captions."""

    name: str
    offset: int = 0
    size: int = 0
    label: int | str = NO_LABEL
    fault: str = ""
    captions: tuple[str, ...] = ()


class TarShard(NamedTuple):
    """What is in an archive at `path`, whose `stamp` is as `stamp_of`: its samples, in their order, and what is no part
    of one, with the reason."""

    path: str
    stamp: Stamp
    samples: list[TarSample]
    skipped: list[tuple[str, str]]


def index_shards(
    paths: Sequence[str],
    remembered_as: Path,
    image: str | None = None,
    label: str | None = None,
    caption: str | None = None,
    progress: Progress | None = None,
) -> list[TarShard]:
    """What is in each archive: one pass over its headers, but for those whose size and times are as remembered.

    Args:
        remembered_as: as `image_index.keep`.
        progress: called with (archives listed, archives to list).
        image: the extension of a sample's image; None: the only one that is an image's.
        label: the extension of a member that holds a whole number or a word, or the field of its `json` that does;
            None: `cls`, a number, else the field `label`, or `cls` with a number.
        caption: the extension of a member whose lines are captions, or the field of its `json` that is a caption or a
            list of them; None: `txt`, unless that is the label, else the field `caption`, or `captions`.

    Raises:
        UnreadableDataError: one is no regular file, or the system does not let it be read.
    """
    stamps = {path: stamp_of(path) for path in paths}
    if odd := [path for path, stamp in stamps.items() if stamp == NOT_A_FILE]:
        raise InaccessibleDataError(f"{odd[0]}: no regular file, or a link to a missing one (expected: a tar archive)")
    about, _ = recall(remembered_as) or ({"shards": ()}, {})
    known = [
        TarShard(path, tuple(stamp), [TarSample(*one, captions=tuple(said)) for *one, said in samples], skipped)
        for path, stamp, samples, skipped in about["shards"]
    ]
    found = {shard.path: shard for shard in known if stamps.get(shard.path) == shard.stamp}
    new = [path for path in stamps if path not in found]
    scanned = thread_map(lambda path: _scan(path, stamps[path], image, label, caption), new)
    for done, (path, shard) in enumerate(scanned, start=1):
        found[path] = shard
        if progress is not None:
            progress(done, len(new))
    shards = [found[path] for path in stamps]
    if new or len(known) != len(found):
        keep(remembered_as, {"shards": shards}, {})
    return shards


def _scan(path: str, stamp: Stamp, image: str | None, label: str | None, caption: str | None) -> TarShard:
    # Key -> extension -> (offset, size) of each of its members of that extension.
    keys, skipped, place = dict[str, dict[str, list[tuple[int, int]]]](), list[tuple[str, str]](), 0
    try:
        with open(path, "rb") as file:
            with contextlib.suppress(*_DAMAGE), tarfile.open(fileobj=file, mode="r:") as archive:
                # A size below 0 leads back to headers that were read, without end.
                while (member := archive.next()) is not None and member.offset < archive.offset <= stamp[0]:
                    # It would keep every one.
                    archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # the stubs lack it
                    place = archive.offset
                    name = re.fullmatch(r"((?:.*/)?[^./][^/.]*)\.([^/]+)", member.name, re.DOTALL)
                    if member.isdir() or re.match("__[^/]*__(/|$)", member.name):
                        continue
                    if name is None or not member.isreg() or member.issparse():
                        skipped.append((f"{path}:{member.name}", "no file with a key and an extension"))
                        continue
                    members = keys.setdefault(name[1], {})
                    members.setdefault(name[2].lower(), []).append((member.offset_data, member.size))
            file.seek(place)
            behind = file.read(tarfile.BLOCKSIZE)
            samples = [_sample(*one, file, image, label, caption) for one in keys.items()]
    except OSError as error:
        raise InaccessibleDataError(f"{path}: {error.strerror or error}") from None
    if place and not behind:
        skipped.append((path, "ends without the mark of its end: what stood behind, if anything did, is lost"))
    elif behind != bytes(tarfile.BLOCKSIZE):
        # One image that cannot be read stands for what nobody can count.
        samples.append(TarSample(f"byte {place}", fault="no archive from here on (expected: a plain tar)"))
    if not samples:
        skipped.append((path, "an archive without samples"))
    return TarShard(path, stamp, samples, skipped)


_Members = dict[str, list[tuple[int, int]]]


def _sample(
    key: str, members: _Members, file: BinaryIO, image: str | None, label: str | None, caption: str | None
) -> TarSample:
    text, known = (label or "cls").lower(), (f".{image}".lower(),) if image else IMAGE_SUFFIXES
    images, there = [one for one in members if f".{one}" in known], f"members: {', '.join(members)}; expected: {key}"
    number, fault = NO_LABEL, f"no label ({there}.{text} or {key}.json; label=EXT chooses)"
    if said := next((one for one in (text, "json") if one in members), None):
        number, fault = _label(_content(file, members[said]), said == text, label)
        fault = fault and f"{key}.{said}: {fault}"
    name, (offset, size) = (f"{key}.{images[0]}", members[images[0]][0]) if images else (key, (0, 0))
    if not images:
        named = f"{image or 'jpg'}; image=EXT chooses; a key ends at the first dot of a name"
        fault = f"no image ({there}.{named})"
    elif len(images) > 1:
        fault, size = f"{' and '.join(images)} are images of one key (image=EXT chooses)", 0
    elif twice := [one for one, places in members.items() if len(places) > 1]:
        fault, size = f"the key is there twice, with two members {key}.{twice[0]}", 0
    elif not size:
        fault = "the member is empty"
    return TarSample(name, offset, size, number, fault, _captions(members, file, caption, text))


def _content(file: BinaryIO, places: list[tuple[int, int]]) -> bytes:
    file.seek(places[0][0])
    return file.read(min(places[0][1], CONFIGURATION))


def _captions(members: _Members, file: BinaryIO, asked: str | None, label: str) -> tuple[str, ...]:
    """What a sample says in words; nothing where that cannot be read."""
    name = (asked or "txt").lower()
    with contextlib.suppress(ValueError):
        if name in members and (asked or name != label):
            return captions_in(_content(file, members[name]).decode().splitlines())
        record = parse_json(_content(file, members["json"])) if "json" in members else None
        if isinstance(record, dict):
            fields = (asked,) if asked else ("caption", "captions")
            return captions_in(next((record[one] for one in fields if one in record), None))
    return ()


def _label(content: bytes, alone: bool, asked: str | None) -> tuple[int | str, str]:
    """The label that a member says, which is `alone` or in a record of JSON, and why that is no number."""
    words, shown, name = asked is not None, "", asked
    try:
        if alone:
            value = content.strip().decode()
            value = int(value) if re.fullmatch("[0-9]{1,18}", value) else value
        else:
            record, fields = parse_json(content), (asked,) if asked else ("label", "cls")
            if not isinstance(record, dict):
                raise ValueError("expected an object")
            name = next((one for one in fields if one in record), None)
            if name is None:
                there = ", ".join(map(str, list(record)[:5])) or "none"
                return NO_LABEL, f"no field {' or '.join(fields)} (fields: {there}; label=FIELD chooses)"
            value, shown, words = record[name], f"{name} ", words or name == "label"
    except ValueError as error:
        return BAD_LABEL, f"cannot be read: {' '.join(str(error).split())}"
    reason = f"{shown}{str(value)[:20]!r} (expected: the number of a class; label={name or 'cls'} takes words)"
    value = str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, int) and 0 <= value < MOST_CLASSES:
        return value, ""
    if value in (None, "", -1, "-1"):
        return NO_LABEL, reason
    return value.strip() if words and isinstance(value, str) else BAD_LABEL, reason


@lru_cache(maxsize=128)
def _opened(path: str, _: Stamp) -> BinaryIO:
    """A file that stays open until nobody holds it any more; its stamp tells it from later ones at its path."""
    return open(path, "rb", buffering=0)


class TarImages:
    """The images of some shards, a row each; a process opens a shard when it reads in it first."""

    def __init__(self, shards: Sequence[TarShard]) -> None:
        samples = [sample for shard in shards for sample in shard.samples]
        self._files = [(shard.path, shard.stamp) for shard in shards]
        self._file = np.repeat(np.arange(len(shards), dtype=np.int32), [len(shard.samples) for shard in shards])
        self._places = np.array([(one.offset, one.size) for one in samples], np.int64)
        self._faults = {row: one.fault for row, one in enumerate(samples) if not one.size}

    def __call__(self, row: int, name: str) -> EncodedImage:
        return EncodedImage(name, partial(self._open, row))

    def _open(self, row: int, name: str) -> io.BufferedReader:
        offset, size = self._places[row].tolist()
        if not size:
            raise UnreadableDataError(f"{name}: {self._faults[row]}")
        path, stamp = self._files[self._file[row]]
        # The file lives as long as what reads from it.
        file = _opened(path, stamp)
        status = os.fstat(file.fileno())
        if (status.st_size, status.st_mtime_ns) != stamp[:2]:
            said = f"{path}: changed since its members were listed; start the command again"
            raise InaccessibleDataError(f"{name}: {said}")
        return io.BufferedReader(ByteRange(size, lambda at, count: os.pread(file.fileno(), count, offset + at)))
