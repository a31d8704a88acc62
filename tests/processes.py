"""Processes as a test sees them: what is alive, and waiting for what another process does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def group(leader: int) -> list[int]:
    """The processes of a group that live."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat") as stream:
                fields = stream.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.append(int(entry))
    return found


def wait_for(what: Callable[[], object], seconds: float = 60, pause: float = 0.02) -> None:
    """Wait until `what()` is true; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(pause)
