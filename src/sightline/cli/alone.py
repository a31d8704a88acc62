"""Outputs that one command at a time may make: of two at once the second is refused before it works."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from sightline.distributed.machine import cache_folder
from sightline.distributed.processes import locked
from sightline.errors import InputError


class _Held(contextlib.ExitStack):
    """The locks of one command, and what they are on."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()


_HELD: ContextVar[_Held | None] = ContextVar("held", default=None)


@contextlib.contextmanager
def one_command() -> Iterator[None]:
    """What `hold` holds inside is let go at the end."""
    with _Held() as held:
        token = _HELD.set(held)
        try:
            yield
        finally:
            _HELD.reset(token)


def hold(out: Path, option: str = "--out") -> None:
    """Refuse a file or folder that another process of this user is making now; until this command ends, others refuse
    it. What exists is looked at after this.

    Where nothing can be kept in the user's cache folder, and on other machines, nobody is told.

    Args:
        option: what named it, for the message.
    """
    held, cache, place = _HELD.get(), cache_folder(), os.path.realpath(out)
    if held is None or cache is None or place in held.places:
        return
    lock = cache / "writing" / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:32]}.lock"
    mine = True
    with contextlib.suppress(OSError):
        lock.parent.mkdir(parents=True, exist_ok=True)
        mine = held.enter_context(locked(lock, patience=0))
    if not mine:
        raise InputError(f"{option} {out}: another command is writing it now; wait for it, or give another name")
    held.places.add(place)
