"""What the C library's heap holds without using it, given back to the system while sizes are ever new.

Buffers of ever other sizes leave holes that the next ones do not fit into: a process that keeps nothing grew by 170 MB
over 300 sizes (docs/LOG.md). Passes of sizes that come again find their holes, and are left alone.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Hashable
from pathlib import Path

# More than so many bytes beyond the last time are given back.
_BYTES = 16 << 20
_LAST = {"resident": 0}
# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# What a pass leaves at the end of the heap and is kept for the next one.
_KEPT_BYTES = 256 << 20
LARGEST_BYTES = 32 << 20
"""The largest buffer that glibc puts into its heap: a larger one comes from the system page by page, each time, which
takes longer than to read it (docs/LOG.md)."""
# By which whoever starts a process says how its heap is to be.
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
_AT_ONCE = {"asked": False}


# A size that came within the last so many is not new.
@functools.lru_cache(maxsize=256)
def pass_of_size(size: Hashable) -> None:
    """Say that the layers of a pass on the CPU are done; where its size is new, what they left is given back."""
    now = _resident_bytes()
    if not _LAST["resident"]:
        _keep_between_layers()
        _LAST["resident"] = now
    elif now > _LAST["resident"] + _BYTES:
        _trim()(0)
        _LAST["resident"] = _resident_bytes()


def give_back_at_once() -> None:
    """From here on have every buffer of a megabyte or more given back to the system when it is freed.

    The C library takes them out of its heap once it has seen some, where they leave holes: what FSDP2 frees of each
    block stayed with the process (docs/LOG.md). It costs the time to take fresh pages.
    """
    _AT_ONCE["asked"] = True
    _set_heap(_MMAP_THRESHOLD, 1 << 20)


def _keep_between_layers() -> None:
    """From here on leave the end of the heap where it is while it holds less than `_KEPT_BYTES` without using them.

    By its own rule glibc gives it back whenever a layer frees twice the largest buffer so far, and the next layer takes
    it page by page again: a seventh of a pass or nothing, by chance (docs/LOG.md).
    """
    if _AT_ONCE["asked"] or any(os.environ.get(name) for name in _CHOSEN):
        return
    _set_heap(_TRIM_THRESHOLD, _KEPT_BYTES)
    # One threshold that is set holds the other where it is.
    _set_heap(_MMAP_THRESHOLD, LARGEST_BYTES)


def _set_heap(option: int, value: int) -> None:
    """An option of glibc's heap; nothing where there is another C library."""
    getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(option, value)


def give_back() -> bool:
    """Give back all that the heap holds without using it; whether this C library can."""
    _trim()(0)
    return hasattr(ctypes.CDLL(None), "malloc_trim")


def _resident_bytes() -> int:
    """The memory of this process that is in use; 0 where it is not known."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


@functools.cache
def _trim() -> Callable[[int], object]:
    """glibc's function; nothing where there is another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
