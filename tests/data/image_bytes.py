"""Files of images made byte by byte, as no writer of ours makes them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

import numpy as np


def packed_rows(values: np.ndarray, bits: int, order: str = ">") -> list[bytes]:
    """The rows of [height, width, ...] numbers of so many bits, the first the highest; a row ends at a whole byte."""
    rows = values.reshape(len(values), -1)
    if bits in (8, 16, 32):
        return [row.astype(f"{order}u{bits // 8}").tobytes() for row in rows]
    texts = ["".join(format(value, f"0{bits}b") for value in row.tolist()) for row in rows]
    return [int(text + "0" * (-len(text) % 8), 2).to_bytes(-(-len(text) // 8), "big") for text in texts]


def chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(values: np.ndarray, bits: int, colour: int, before: bytes = b"", behind: bytes = b"") -> bytes:
    """A PNG of [height, width, ...] numbers; `before` and `behind` are chunks around those of the pixels."""
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], bits, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in packed_rows(values, bits)))
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + before + chunk(b"IDAT", pixels) + behind + chunk(b"IEND", b"")


def tiff(
    values: np.ndarray,
    bits: int,
    photometric: int = 1,
    order: str = "<",
    tags: Mapping[int, tuple[int, ...]] | None = None,
) -> bytes:
    """An uncompressed TIFF of one strip; `tags` are further ones, of short numbers."""
    channels = 1 if values.ndim == 2 else values.shape[2]
    pixels = b"".join(packed_rows(values, bits, order))
    pixels += b"\0" * (len(pixels) % 2)
    height, width = values.shape[:2]
    said = {256: (width,), 257: (height,), 258: (bits,) * channels, 259: (1,), 262: (photometric,), 273: (8,),
            277: (channels,), 278: (height,), 279: (len(pixels),)} | dict(tags or {})  # fmt: skip
    beyond = 8 + len(pixels) + 2 + 12 * len(said) + 4
    entries, extra = b"", b""
    for tag, numbers in sorted(said.items()):
        content = struct.pack(f"{order}{len(numbers)}H", *numbers)
        if len(content) > 4:
            content, extra = struct.pack(f"{order}I", beyond + len(extra)), extra + content
        entries += struct.pack(f"{order}HHI", tag, 3, len(numbers)) + content.ljust(4, b"\0")
    head = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8 + len(pixels))
    return head + pixels + struct.pack(f"{order}H", len(said)) + entries + bytes(4) + extra
