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
# Of glibc's malloc.h; no threshold of mapping may be larger than this one.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_THRESHOLD = 32 << 20
# More than any step leaves free at the heap's end.
_KEPT = 1 << 30


# A size that came within the last so many is not new.
@functools.lru_cache(maxsize=256)
def pass_of_size(size: Hashable) -> None:
    """Say that the layers of a pass on the CPU are done; where its size is new, what they left is given back."""
    now = _resident_bytes()
    if not _LAST["resident"]:
        _LAST["resident"] = now
    elif now > _LAST["resident"] + _BYTES:
        _trim()(0)
        _LAST["resident"] = _resident_bytes()


def keep() -> None:
    """From here on keep what is freed, for the next step to take; `pass_of_size` and `give_back` still give back.

    The C library gives back what is free at the heap's end beyond some megabytes, and takes it anew in the next step:
    5,500 pages in each step of the demonstration, a tenth of its time (docs/LOG.md).
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    # Either one fixes both, which the library else moves by what it sees.
    set_option(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
    set_option(_TRIM_THRESHOLD, _KEPT)


def give_back_at_once() -> None:
    """From here on have every buffer of a megabyte or more given back to the system when it is freed.

    The C library takes them out of its heap once it has seen some, where they leave holes: what FSDP2 frees of each
    block stayed with the process (docs/LOG.md). It costs the time to take fresh pages.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    set_option(_MMAP_THRESHOLD, 1 << 20)
    # The library's own, after `keep`.
    set_option(_TRIM_THRESHOLD, 128 << 10)


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
