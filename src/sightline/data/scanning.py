"""Whoever wants to see how far a data set is listed that takes long to open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar

# Given what is listed and how many there are of it: a context whose value is told how many more are done.
Watch = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def _unseen(what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    return contextlib.nullcontext(lambda count: None)


_WATCH: ContextVar[Watch] = ContextVar("watch", default=_unseen)


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Inside, data sets that are opened show how far they are."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def scanning(what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """What a data set moves on by as many as it has listed, of so many."""
    return _WATCH.get()(what, total)
