"""Images in tar archives, read where they begin; a process opens an archive when it reads in it first."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from sightline.data.encoded import ByteRange, EncodedImage, ImageCollection
from sightline.data.shards import TarShard
from sightline.errors import InaccessibleDataError, UnreadableDataError

# Shards that a process keeps open.
_OPEN = 128


class _Handle:
    """An open file, until nobody holds it any more."""

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class TarImages(ImageCollection):
    """The images of some shards, a row each."""

    def __init__(self, shards: Sequence[TarShard]) -> None:
        self._paths, self._stamps = [shard.path for shard in shards], [shard.stamp for shard in shards]
        counts = [len(shard.names) for shard in shards]
        self._shard = np.repeat(np.arange(len(shards), dtype=np.int32), counts)
        self._places = np.array(
            [place for shard in shards for place in zip(shard.offsets, shard.sizes, strict=True)], np.int64
        ).reshape(-1, 2)
        starts = np.cumsum([0, *counts]).tolist()
        self._lost = {
            start + row: reason
            for shard, start in zip(shards, starts, strict=False)
            for row, reason in shard.lost.items()
        }
        self._open: dict[int, _Handle] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._lock = threading.Lock()

    def of(self, row: int, name: str) -> EncodedImage:
        offset, size = self._places[row].tolist()
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
