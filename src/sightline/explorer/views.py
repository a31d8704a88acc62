"""The views that were computed, within a bound of bytes, and which of those that are asked for are still wanted."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

from sightline.explorer.errors import HttpError, expired, superseded
from sightline.explorer.limits import MOST_VIEWS
from sightline.explorer.models import PassResult
from sightline.explorer.requests import ViewSpec


@dataclass(frozen=True, eq=False)
class CachedView:
    """A pass that is kept, by its id."""

    id: str
    wanted: ViewSpec
    seen: PassResult


class ViewCache:
    """Views by id, the least recently used given up first; safe among threads.

    Attributes:
        most_bytes: that they take together; held_bytes: that they take now.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.held_bytes = most_bytes, 0
        self._lock = threading.Lock()
        self._views: OrderedDict[str, CachedView] = OrderedDict()
        self._ids: dict[ViewSpec, str] = {}
        # Tells this server's ids from those of another one that ran before.
        self._name, self._count = secrets.token_hex(4), 0

    def of(self, wanted: ViewSpec) -> CachedView | None:
        """The view that was computed of this already, or None."""
        with self._lock:
            number = self._ids.get(wanted)
            if number is None:
                return None
            self._views.move_to_end(number)
            return self._views[number]

    def put(self, wanted: ViewSpec, seen: PassResult) -> CachedView:
        """Keep a view, and give up others for it."""
        with self._lock:
            self._count += 1
            view = CachedView(f"{self._name}-{self._count}", wanted, seen)
            known = self._ids.get(wanted)
            if known is not None:
                # Two panes asked for it at once.
                self._drop(known)
            self._views[view.id], self._ids[wanted] = view, view.id
            self.held_bytes += seen.nbytes
            while (self.held_bytes > self.most_bytes and len(self._views) > 1) or len(self._views) > MOST_VIEWS:
                self._drop(next(iter(self._views)))
            return view

    def _drop(self, number: str) -> None:
        view = self._views.pop(number)
        del self._ids[view.wanted]
        self.held_bytes -= view.seen.nbytes

    def __getitem__(self, number: str) -> CachedView:
        """The view of that id.

        Raises:
            HttpError: 410 where it was given up, 404 where there was none.
        """
        with self._lock:
            if number in self._views:
                self._views.move_to_end(number)
                return self._views[number]
            name, _, count = number.partition("-")
            numbered = count.isascii() and count.isdecimal() and len(count) < 12
            if name == self._name and numbered and 1 <= int(count) <= self._count:
                raise expired("view")
        raise HttpError(404, "there is no such view")


class CancelToken:
    """What a request for a view holds: whether it is still wanted."""

    def __init__(self) -> None:
        self._dropped = threading.Event()

    def drop(self) -> None:
        """Nobody waits for it any more."""
        self._dropped.set()

    @property
    def dropped(self) -> bool:
        """Whether nobody does."""
        return self._dropped.is_set()

    def check(self) -> None:
        """Between two layers: raises HttpError (409) where it is wanted no more."""
        if self.dropped:
            raise superseded()
