"""What is known of the images of a data set, files or parts of files: sizes, times, dimensions, samples of their
content, faults. In columns, since there may be millions; kept between commands, a file a data set in the user's cache
folder, and checked by `stat` alone."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from sightline.data.image_file import EncodedImage, ImageAt, ImageRef, open_image_bytes, read_image_size
from sightline.data.skip_policy import Progress
from sightline.distributed import machine
from sightline.errors import InaccessibleDataError, StorageError, UnreadableDataError
from sightline.io.atomic import write_out

# Bytes of a file that are compared: so many at its beginning, middle and end, all of one that is no larger than those.
_SAMPLE = 4096
SAMPLED_WHOLE = 3 * _SAMPLE
_DIGEST = 16
# Reading headers waits for the disk; past this many threads there is nothing left to gain.
_THREADS = 16
# Items that are handed to threads together: what waits takes no memory for millions.
_AT_ONCE = 2048
# Of what is kept of all folders together; the oldest are dropped. A million files take about 150 MB.
_MOST_BYTES = 512 * 2**20
_VERSION = 7
_COLUMNS = ("stats", "sizes", "samples", "read")
_NOTED = ("frames", "faults", "damaged", "digests")
T = TypeVar("T")
R = TypeVar("R")
Stamp = tuple[int, int, int]
NOT_A_FILE = (-1, -1, -1)
"""The stamp of what is no regular file."""


def stamp_of(path: str | Path) -> Stamp:
    """What tells a file from what it was: its size in bytes, and when content and file last changed, in ns."""
    try:
        status = os.stat(path)
    # The name of a table's image may be none for the system.
    except (OSError, ValueError):
        return NOT_A_FILE
    regular = stat.S_ISREG(status.st_mode)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns) if regular else NOT_A_FILE


@dataclass(eq=False)
class ImageIndex:
    """The files of a folder, a row each; or images that are parts of files.

    Attributes:
        names: paths below the folder, of the split, the class and the file; paths: where they are, what messages name.
        stats: int64 [files, 3], as `stamp_of`. Of a part of a file: its own size, and that file's times.
        contents: where the bytes of rows are that are no files of their own; None: `paths` are files.
        sizes: int32 [files, 2], (height, width) upright, 0 where unknown.
        frames: row -> how many, of clips.
        samples: uint8 [files, 16], digests of samples.
        digests: row -> half of the whole's SHA-256, where asked for.
        read: bool [files], whether the header was read, and needs not be again.
        faults: row -> why its header cannot be read; damaged: why its pixels cannot be decoded, where that was tried.
        notes: what was measured of the whole (`noted`).
        changed: whether more is known than was remembered.
    """

    names: list[str]
    paths: list[str]
    stats: np.ndarray
    contents: ImageAt | None = None
    frames: dict[int, int] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    damaged: dict[int, str] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    changed: bool = False

    def __post_init__(self) -> None:
        count = len(self.names)
        self.sizes, self.samples = np.zeros((count, 2), np.int32), np.zeros((count, _DIGEST), np.uint8)
        self.read = np.zeros(count, bool)

    @classmethod
    def of_files(cls, names: list[str], paths: Sequence[str | Path], stamp: Callable[[str], Stamp] = stamp_of) -> Self:
        """Of files at these paths, as they are now."""
        told = [os.fspath(path) for path in paths]
        return cls(names, told, np.array(list(map(stamp, told)), np.int64).reshape(-1, 3))

    @cached_property
    def splits(self) -> list[str]:
        """The folder of the split of each row."""
        return [name.partition("/")[0] for name in self.names]

    def image(self, row: int) -> ImageRef:
        """Where the bytes of a row are."""
        return self.paths[row] if self.contents is None else self.contents(row, self.paths[row])

    def load(self, place: Path) -> None:
        """Take over what is kept under the name of a place of the files whose stamps are still the same."""
        if (kept := recall(place)) is None:
            return
        about, columns = kept
        before = {name: row for row, name in enumerate(about["names"])}
        pairs = [(row, before[name]) for row, name in enumerate(self.names) if name in before]
        rows, olds = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        same = (self.stats[rows] == columns["stats"][olds]).all(axis=1) & (self.stats[rows, 0] >= 0)
        rows, olds = rows[same], olds[same]
        for column in ("sizes", "samples", "read"):
            getattr(self, column)[rows] = columns[column][olds]
        now = dict(zip(map(str, olds.tolist()), rows.tolist(), strict=True))
        for told in _NOTED:
            setattr(self, told, {now[old]: value for old, value in about[told].items() if old in now})
        self.notes = about["notes"]
        self.changed = len(rows) < max(len(self.names), len(before))

    def save(self, place: Path) -> None:
        """Keep what is known for `load`; silently not where the cache cannot be written."""
        about: dict[str, Any] = {told: getattr(self, told) for told in (*_NOTED, "names", "notes")}
        about["faults"] = {row: reason for row, reason in self.faults.items() if self.read[row]}
        keep(place, about, {column: getattr(self, column) for column in _COLUMNS})
        self.changed = False

    def noted(self, what: str, of: str, measure: Callable[[], Any]) -> Any:
        """What was measured of the whole, as plain values, as long as `of`, what it hangs on, is the same."""
        if self.notes.get(what, {}).get("of") != of:
            self.notes[what], self.changed = {"of": of, "found": measure()}, True
        return self.notes[what]["found"]

    def read_headers(self, rows: Iterable[int], progress: Progress | None = None) -> None:
        """Read the headers that are not known yet, side by side; `progress` is called with (files done, files in all)
        for each."""
        wanted = list(rows)
        unknown = [row for row in wanted if not self.read[row]]
        known, say = len(wanted) - len(unknown), progress or (lambda *_: None)
        if known:
            say(known, len(wanted))
        headers = thread_map(lambda row: read_header(self.image(row)), unknown, _THREADS)
        for done, (row, (size, sample, fault, lasting)) in enumerate(headers, start=known + 1):
            self.sizes[row], self.samples[row] = size[:2], np.frombuffer(sample, np.uint8)
            if len(size) > 2:
                self.frames[row] = size[2]
            self.faults.pop(row, None)
            if fault is not None:
                self.faults[row] = fault
            # A fault of the system's is asked for again.
            self.read[row], self.changed = lasting and self.stats[row, 0] >= 0, True
            say(done, len(wanted))

    def digest(self, row: int) -> str | None:
        """Of a row's file, which is read once; None where it cannot be read."""
        if row not in self.digests:
            try:
                with open_image_bytes(self.image(row)) as file:
                    self.digests[row] = hashlib.file_digest(file, "sha256").hexdigest()[:32]
            except (OSError, UnreadableDataError):
                return None
            self.changed = True
        return self.digests[row]

    def duplicates(self, *, across: bool, rows: Sequence[int] | None = None) -> list[list[int]]:
        """Groups of rows whose files hold the same bytes, in order, told by size, then a sample, and only then by the
        whole, among some rising rows or all; `across`: those that reach over two splits, for which few files are read.
        Empty files, and what cannot be read, are left out."""
        groups = [list(range(len(self.names)) if rows is None else rows)]
        sizes = np.maximum(self.stats[:, 0], 0).tolist()
        keys = (sizes.__getitem__, lambda row: self.samples[row].tobytes(), self.digest)
        for step, key in enumerate(keys):
            if step:
                self.read_headers(sorted(itertools.chain.from_iterable(groups)))
            parts: dict[tuple[int, object], list[int]] = defaultdict(list)
            for number, group in enumerate(groups):
                for row in group:
                    parts[number, key(row)].append(row)
            alike = [part for (_, value), part in parts.items() if value and len(part) > 1]
            groups = [part for part in alike if not across or len({self.splits[row] for row in part}) > 1]
        return groups


def thread_map(
    function: Callable[[T], R], items: Sequence[T], threads: int = os.cpu_count() or 1
) -> Iterator[tuple[T, R]]:
    """Each item and what a function of it gives, in their order."""
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(items), _AT_ONCE):
            part = items[start : start + _AT_ONCE]
            yield from zip(part, pool.map(function, part), strict=True)


def read_header(path: ImageRef) -> tuple[tuple[int, ...], bytes, str | None, bool]:
    """What a file's header and bytes say: (height, width), of a clip with the frames too, a digest of a sample, and
    why the header cannot be read, or None; last whether such a fault is the file's own. Never raises."""
    size, sample, reason, lasting = (0, 0), bytes(_DIGEST), None, True
    try:
        size = (path.header() if isinstance(path, EncodedImage) else None) or read_image_size(path, max_pixels=None)
    except (UnreadableDataError, OSError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        lasting = isinstance(error, UnreadableDataError) and not isinstance(error, InaccessibleDataError)
    try:
        if reason is None or isinstance(path, EncodedImage) or os.path.isfile(path):
            # Of the whole of a small file, of the beginning, middle and end of others.
            with open_image_bytes(path) as file:
                seen, end = hashlib.sha256(), file.seek(0, os.SEEK_END)
                for place in (0, end // 2, end - _SAMPLE) if end > SAMPLED_WHOLE else (0,):
                    file.seek(place)
                    seen.update(file.read(_SAMPLE if end > SAMPLED_WHOLE else end))
            sample = seen.digest()[:_DIGEST]
    except (OSError, UnreadableDataError) as error:
        reason, lasting = reason or str(error).removeprefix(f"{path}: "), False
    return size, sample, reason, lasting


def _file(place: Path) -> Path | None:
    """Where what is known of a place is kept, or None where nothing is."""
    folder = machine.cache_folder()
    name = hashlib.sha256(os.fsencode(os.path.realpath(place))).hexdigest()[:32]
    return None if folder is None else folder / "scans" / f"{name}.npz"


def recall(place: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """The plain values and the columns that are kept under the name of a place; None where there is nothing, or nothing
    that can be read."""
    path = _file(place)
    try:
        if path is None or not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as kept:
            columns = dict(kept)
        about = json.loads(columns.pop("about").tobytes())
        return (about, columns) if about["version"] == _VERSION else None
    # A damaged file raises nearly anything; what it said is found out anew.
    except Exception:
        return None


def keep(place: Path, about: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
    """Keep what `recall` gives, whole or not at all; silently not where the cache cannot be written."""
    if (path := _file(place)) is None:
        return
    content = io.BytesIO()
    text = np.frombuffer(json.dumps({"version": _VERSION, **about}).encode(), np.uint8)
    np.savez(content, about=text, **columns)  # pyright: ignore[reportArgumentType]
    with contextlib.suppress(OSError, StorageError):
        write_out(path, content.getvalue())
        total = 0
        for entry in sorted(os.scandir(path.parent), key=lambda entry: entry.stat().st_mtime, reverse=True):
            total += entry.stat().st_size
            if total > _MOST_BYTES and entry.path != str(path):
                os.unlink(entry)
