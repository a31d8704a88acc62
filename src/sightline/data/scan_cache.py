"""What was found out about folders, kept between commands and checked by `stat` alone: a file a folder in the user's
cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.file_listing import FileListing
from sightline.errors import StorageError
from sightline.replacing import write_out

CACHE_VARIABLE = "SIGHTLINE_CACHE"
"""Environment variable: the folder of the cache; empty for none."""

# Of all folders together; the oldest are dropped. A million files take about 100 MB.
_MOST_BYTES = 512 * 2**20
_VERSION = 2
_COLUMNS = ("stamps", "sizes", "samples", "read")


def _file(root: Path) -> Path | None:
    """Where a scan is kept: in $SIGHTLINE_CACHE, or sightline in $XDG_CACHE_HOME or ~/.cache; None for nowhere."""
    asked, base = os.environ.get(CACHE_VARIABLE), os.environ.get("XDG_CACHE_HOME")
    if asked == "":
        return None
    try:
        folder = Path(asked) if asked else (Path(base) if base else Path.home() / ".cache") / "sightline"
    except RuntimeError:
        return None
    name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:32]
    return folder / "scans" / f"{name}.npz"


def recall(root: Path) -> FileListing | None:
    """What is remembered of a folder; None where there is nothing, or nothing that can be read."""
    path = _file(root)
    try:
        if path is None or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        with np.load(path, allow_pickle=False) as kept:
            about = json.loads(kept["about"].tobytes())
            if about["version"] != _VERSION:
                return None
            text = zlib.decompressobj().decompress(kept["names"].tobytes(), _MOST_BYTES)
            names = os.fsdecode(text).split("\0") if text else []
            listing = FileListing(names, names, np.zeros((len(names), 3), np.int64))
            for column in _COLUMNS:
                values = kept[column]
                if values.shape != getattr(listing, column).shape:
                    return None
                setattr(listing, column, values)
        for name in ("faults", "damaged", "digests"):
            setattr(listing, name, {int(row): str(value) for row, value in about[name].items()})
        listing.notes = dict(about["notes"])
    # A damaged file raises nearly anything; what it said is found out anew.
    except Exception:
        return None
    return listing


def keep(root: Path, listing: FileListing) -> None:
    """Remember what is known of a folder, whole or not at all; silently not where the cache cannot be written."""
    path = _file(root)
    if path is None:
        return
    # A fault of the system's is asked for again.
    known = listing.read.copy()
    known[list(listing.passing)] = False
    about = {
        "version": _VERSION,
        "faults": {row: reason for row, reason in listing.faults.items() if row not in listing.passing},
        "damaged": listing.damaged,
        "digests": listing.digests,
        "notes": listing.notes,
    }
    names = zlib.compress(os.fsencode("\0".join(listing.names)), 1)
    content = io.BytesIO()
    columns: dict[str, Any] = {column: getattr(listing, column) for column in _COLUMNS} | {"read": known}
    columns |= {"names": np.frombuffer(names, np.uint8), "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    np.savez(content, **columns)
    with contextlib.suppress(OSError, StorageError):
        write_out(path, content.getvalue())
        listing.changed = False
        _drop_oldest(path)


def _drop_oldest(newest: Path) -> None:
    """Keep all files together within the bound; what a killed writer left goes first."""
    found = sorted(
        ((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(newest.parent)),
        reverse=True,
    )
    total = 0
    for _, size, path in found:
        total += size
        if total > _MOST_BYTES and path != str(newest):
            with contextlib.suppress(OSError):
                os.unlink(path)
