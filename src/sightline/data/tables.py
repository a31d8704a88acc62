"""Encoded images in columns of Arrow tables, read where they are: of a mapped file no more is fetched than is asked."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.data.encoded import ByteRange, EncodedImage, ImageCollection
from sightline.data.image_file import check_image_file
from sightline.errors import UnreadableDataError

if TYPE_CHECKING:
    import pyarrow as pa


def image_lengths(column: pa.ChunkedArray) -> np.ndarray:
    """int64 [rows]: bytes of each image; -1 where there are none. No image is touched."""
    return np.concatenate([_Chunk(chunk).lengths() for chunk in column.chunks])


class _Chunk:
    """A part of a column: its bytes in one piece, and where each row's begin."""

    def __init__(self, chunk: pa.Array) -> None:
        import pyarrow as pa

        structs = pa.types.is_struct(chunk.type)
        held = chunk.field("bytes") if structs else chunk
        self._paths = chunk.field("path") if structs else None
        _, offsets, content = held.buffers()
        width = np.dtype(np.int64 if pa.types.is_large_binary(held.type) else np.int32)
        count = len(held) + 1
        self._offsets = np.frombuffer(offsets, width, count, held.offset * width.itemsize) if len(held) else None
        self._content = memoryview(b"" if content is None else content).cast("B")
        # A struct that is absent may have anything inside.
        self._given = _is_valid(chunk)
        self._there = _is_valid(held) & self._given

    def lengths(self) -> np.ndarray:
        if self._offsets is None:
            return np.zeros(0, np.int64)
        return np.where(self._there, np.diff(self._offsets).astype(np.int64), -1)

    def content(self, row: int) -> memoryview | None:
        if self._offsets is None or not self._there[row]:
            return None
        return self._content[int(self._offsets[row]) : int(self._offsets[row + 1])]

    def path(self, row: int) -> str | None:
        return (self._paths[row].as_py() or None) if self._paths is not None and self._given[row] else None


def _is_valid(array: pa.Array) -> np.ndarray:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), bool)


class ArrowImages(ImageCollection):
    """The images of some tables, a row each; a process maps their files itself."""

    def __init__(self, tables: Mapping[str, Any], column: str) -> None:
        """Of these `datasets.Dataset`, one after the other."""
        self._tables, self._column = [table.select_columns([column]) for table in tables.values()], column

    def __getstate__(self) -> dict[str, Any]:
        return {"_tables": self._tables, "_column": self._column}

    @cached_property
    def _chunks(self) -> tuple[list[_Chunk], np.ndarray]:
        """The parts of all tables, and the first row of each."""
        chunks = [chunk for table in self._tables for chunk in table.data.column(self._column).chunks]
        starts = np.cumsum([0, *(len(chunk) for chunk in chunks)])[:-1]
        return [_Chunk(chunk) for chunk in chunks], starts

    def _at(self, row: int) -> tuple[_Chunk, int]:
        chunks, starts = self._chunks
        # Of parts without rows the last that begins here is meant.
        number = int(np.searchsorted(starts, row, side="right")) - 1
        return chunks[number], row - int(starts[number])

    def path_of(self, row: int) -> str | None:
        """The file that holds an image whose bytes are not in the table; None where there is none."""
        chunk, at = self._at(row)
        return chunk.path(at) if chunk.content(at) is None else None

    def of(self, row: int, name: str) -> EncodedImage:
        chunk, at = self._at(row)
        content = chunk.content(at)
        return _Cell(name, content, self.path_of(row) if content is None else None)


class _Cell(EncodedImage):
    """An image in a table, or in the file that the table names."""

    def __init__(self, name: str, content: memoryview | None, path: str | None) -> None:
        super().__init__(name)
        self._content, self._path = content, path

    def open(self) -> io.BufferedReader:
        content = self._content
        if content is None and self._path is not None:
            if reason := check_image_file(self._path):
                raise UnreadableDataError(f"{self.name}: its file {self._path}: {reason}")
            return open(self._path, "rb")
        if not content:
            raise UnreadableDataError(f"{self.name}: no image in this row")
        return ByteRange.buffered(len(content), lambda place, count: content[place : place + count])
