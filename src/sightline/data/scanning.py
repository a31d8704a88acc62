"""Whoever wants to see how far a data set is listed that takes long to open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar

Watch = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Given what is listed and how many there are of it: a context whose value is told how many more are done."""


def _unseen(what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    return contextlib.nullcontext(lambda count: None)


WATCH: ContextVar[Watch] = ContextVar("watch", default=_unseen)
"""Who watches; nobody unless it is set."""
