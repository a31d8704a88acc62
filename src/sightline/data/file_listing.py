"""What is known of the files of a folder: sizes, times, dimensions, samples of their content, faults; in columns, since
there may be millions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sightline.data.image_file import read_image_size
from sightline.errors import InaccessibleDataError, UnreadableDataError

# Bytes of a file that are compared: so many at its beginning, middle and end, all of one that is no larger than those.
_SAMPLE = 4096
SAMPLED_WHOLE = 3 * _SAMPLE
_DIGEST = 16
# Reading headers waits for the disk; past this many threads there is nothing left to gain.
_THREADS = 16
_AT_ONCE = 2048


class FileStamp(NamedTuple):
    """What `stat` says of a file: its size in bytes and its times in nanoseconds; -1 where it is no regular file."""

    size: int = -1
    modified: int = -1
    changed: int = -1


class Header(NamedTuple):
    """What a file's header and a sample of its bytes say; `lasting` where a fault is the file's own."""

    height: int
    width: int
    sample: bytes
    fault: str | None
    lasting: bool


@dataclass(eq=False)
class FileListing:
    """The files of a folder, a row each.

    Attributes:
        names: paths below the folder, of the split, the class and the file.
        stamps: int64 [files, 3], as `FileStamp`.
        sizes: int32 [files, 2], (height, width) upright; 0 where it is not known.
        samples: uint8 [files, 16], a digest of a sample of the content.
        read: bool [files], whether the header was read.
        faults: row -> why its header cannot be read; lasting: those of them that are the file's own.
        damaged: row -> why its pixels cannot be decoded, where that was tried.
        digests: row -> `file_digest`, where that was asked for.
        notes: what was measured of the whole, as plain values.
    """

    names: list[str]
    stamps: np.ndarray
    sizes: np.ndarray
    samples: np.ndarray
    read: np.ndarray
    faults: dict[int, str] = field(default_factory=dict)
    lasting: set[int] = field(default_factory=set)
    damaged: dict[int, str] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    changed: bool = False

    @classmethod
    def of(cls, names: list[str], stamps: Sequence[FileStamp]) -> FileListing:
        """Files of which only the names and stamps are known."""
        count = len(names)
        return cls(
            names,
            np.array(stamps, dtype=np.int64).reshape(count, 3),
            np.zeros((count, 2), np.int32),
            np.zeros((count, _DIGEST), np.uint8),
            np.zeros(count, bool),
        )

    def remember(self, before: FileListing) -> None:
        """Take over what was known of the files whose stamps are still the same."""
        if self.names == before.names:
            rows = olds = np.arange(len(self.names))
        else:
            place = {name: row for row, name in enumerate(before.names)}
            pairs = [(row, place[name]) for row, name in enumerate(self.names) if name in place]
            rows, olds = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        same = (self.stamps[rows] == before.stamps[olds]).all(axis=1) & (self.stamps[rows, 0] >= 0)
        rows, olds = rows[same], olds[same]
        self.sizes[rows], self.samples[rows], self.read[rows] = (
            before.sizes[olds],
            before.samples[olds],
            before.read[olds],
        )
        back = {int(old): int(row) for row, old in zip(rows, olds, strict=True) if old in before.faults or old in
                before.damaged or old in before.digests}  # fmt: skip
        for ours, theirs in (
            (self.faults, before.faults),
            (self.damaged, before.damaged),
            (self.digests, before.digests),
        ):
            ours |= {back[old]: value for old, value in theirs.items() if old in back}
        self.lasting = set(self.faults)
        self.notes = dict(before.notes)
        self.changed = len(rows) < max(len(self.names), len(before.names))

    def read_headers(
        self,
        paths: Sequence[str],
        rows: Iterable[int],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Read the headers that are not known yet, side by side.

        Args:
            paths: of each row in `rows`.
            progress: called with (files done, files in all), for each.
        """
        wanted = list(zip(rows, paths, strict=True))
        unknown = [(row, path) for row, path in wanted if not self.read[row]]
        done = len(wanted) - len(unknown)
        if progress is not None and done:
            progress(done, len(wanted))
        if not unknown:
            return
        with ThreadPoolExecutor(min(_THREADS, len(unknown))) as pool:
            for start in range(0, len(unknown), _AT_ONCE):
                part = unknown[start : start + _AT_ONCE]
                for (row, _), header in zip(part, pool.map(read_header, [path for _, path in part]), strict=True):
                    self._take(row, header)
                    done += 1
                    if progress is not None:
                        progress(done, len(wanted))

    def digest(self, row: int, path: str) -> str | None:
        """`file_digest` of a row's file, which is read once; None where it cannot be read."""
        if row not in self.digests:
            try:
                self.digests[row] = file_digest(path)
            except OSError:
                return None
            self.changed = True
        return self.digests[row]

    def _take(self, row: int, header: Header) -> None:
        self.sizes[row] = header.height, header.width
        self.samples[row] = np.frombuffer(header.sample, np.uint8)
        self.read[row] = True
        self.changed = True
        if header.fault is not None:
            self.faults[row] = header.fault
            if header.lasting and self.stamps[row, 0] >= 0:
                self.lasting.add(row)

    def to_keep(self) -> np.ndarray:
        """bool [files]: what may be remembered; a fault of the system's is asked for again."""
        passing = np.zeros(len(self.names), bool)
        passing[[row for row in self.faults if row not in self.lasting]] = True
        return self.read & ~passing


def read_header(path: str) -> Header:
    """What a header and a sample of a file say; never raises."""
    sample = b""
    try:
        height, width = read_image_size(path, max_pixels=None)
        sample = content_sample(path)
        return Header(height, width, sample, None, True)
    except (UnreadableDataError, OSError) as error:
        lasting = isinstance(error, UnreadableDataError) and not isinstance(error, InaccessibleDataError)
        try:
            sample = content_sample(path) if os.path.isfile(path) else b"\0" * _DIGEST
        except OSError:
            lasting = False
        return Header(0, 0, sample or b"\0" * _DIGEST, str(error).removeprefix(f"{path}: "), lasting)


def content_sample(path: str) -> bytes:
    """16 bytes that tell contents apart: of the whole of a small file, of the beginning, middle and end of others."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(SAMPLED_WHOLE if size <= SAMPLED_WHOLE else _SAMPLE)
        if size > SAMPLED_WHOLE:
            for place in (size // 2, size - _SAMPLE):
                file.seek(place)
                content += file.read(_SAMPLE)
    return hashlib.sha256(content).digest()[:_DIGEST]


def file_digest(path: str) -> str:
    """Half of the SHA-256 of a whole file, in hexadecimal; raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]
