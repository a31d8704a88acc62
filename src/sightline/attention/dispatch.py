"""One place that chooses who computes attention."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import isabstract
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention import backends
from sightline.attention.backends.base import Backend, BackendFailed
from sightline.attention.pattern import Pattern
from sightline.errors import InputError, unknown_name_error
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

T = TypeVar("T")


def _find() -> dict[str, Backend]:
    """The back ends of the folder, by name, the most preferred first: a new one is one new file."""
    found: list[Backend] = []
    for info in pkgutil.iter_modules(backends.__path__):
        module = importlib.import_module(f"{backends.__name__}.{info.name}")
        own = [one for one in vars(module).values() if getattr(one, "__module__", None) == module.__name__]
        found += [one() for one in own if isinstance(one, type) and issubclass(one, Backend) and not isabstract(one)]
    return {backend.name: backend for backend in sorted(found, key=lambda one: -one.preference)}


# The last, `dense`, supports everything.
BACKENDS: dict[str, Backend] = _find()

# Those that turned out not to run on this machine.
_FAILED: set[str] = set()

_FORCED: ContextVar[str] = ContextVar("sightline_backend", default="auto")


def _forced() -> Backend | None:
    # A compiler cannot look into a context variable, and takes `dense` in any case.
    name = "auto" if torch.compiler.is_compiling() else _FORCED.get()
    return None if name in _FAILED else BACKENDS.get(name)


def asked_backend() -> str:
    """The name that `use_backend` was called with around this call, or `auto`."""
    return _FORCED.get()


@contextmanager
def _set(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def use_backend(name: str) -> AbstractContextManager[None]:
    """Inside, the back end `name` computes attention wherever it supports it; `auto` leaves the choice to `dispatch`.

    Raises:
        InputError: there is no such back end; names the nearest.
    """
    if name != "auto" and name not in BACKENDS:
        raise unknown_name_error("back end", name, ["auto", *BACKENDS])
    return _set(_FORCED, name)


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """One call of `attend`, before it is computed: its arguments, without padding.

    Attributes:
        layer: of the trunk, from 0; None for attention pooling.
    """

    layer: int | None
    q: Tensor
    k: Tensor
    v: Tensor
    pattern: Pattern | None
    keys: TokenLayout
    queries: TokenLayout


_RECORDER: ContextVar[Callable[[AttentionRecord], None] | None] = ContextVar("sightline_recorder", default=None)


def record_attention(recorder: Callable[[AttentionRecord], None] | None) -> AbstractContextManager[None]:
    """Inside, every call of `attend` in this thread is shown to `recorder` first, to nobody where it is None; no
    compiled program is looked into.

    What heads do is computed from queries, keys and the pattern, by blocks if need be: no back end keeps its scores.
    """
    return _set(_RECORDER, recorder)


def is_recorded() -> bool:
    """Whether calls of `attend` are shown to anybody here."""
    return not torch.compiler.is_compiling() and _RECORDER.get() is not None


@contextmanager
def computed_again(backend: str) -> Iterator[None]:
    """Inside, what was computed once is computed again for the backward pass: by that back end, as `use_backend`, and
    shown to no recorder a second time."""
    with _set(_FORCED, backend), _set(_RECORDER, None):
        yield


def dispatch(pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, q: Tensor) -> Backend:
    """The most preferred back end that supports this call and was measured to pay here.

    Args:
        pattern, queries, keys: as `Backend.__call__`.
        q: the queries, for their device and dtype; its values are not read.
    """
    forced = _forced()
    if forced is not None and forced.supports(pattern, queries, keys, q):
        return forced
    return next(
        backend
        for name, backend in BACKENDS.items()
        if name not in _FAILED and backend.supports(pattern, queries, keys, q) and backend.pays(pattern, keys, q)
    )


def preferred_tile(pattern: Pattern | None, layout: TokenLayout) -> Grid | None:
    """The order, as `Segment.tile`, in which attention with this pattern wants the tokens of a row-major layout."""
    # A compiled or exported program takes `dense`, for which the order is nothing but work.
    if torch.compiler.is_compiling() or not layout.segments or layout.axes != 2:
        return None
    forced = _forced()
    if forced is not None:
        return forced.tile
    usable = (backend for name, backend in BACKENDS.items() if name not in _FAILED)
    return next((backend.tile for backend in usable if backend.orders(pattern, layout)), None)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None,
    keys: TokenLayout,
    queries: TokenLayout | None = None,
    layer: int | None = None,
) -> Tensor:
    """Attention of each image's queries over its own keys; shapes as `Backend.__call__`.

    `queries` is the layout of `q` where it is not that of `k` and `v` (attention pooling). No images give no outputs;
    padding slots get zeros, and no back end sees them. `layer` of the trunk is for `recording` alone.

    Raises:
        InputError: the tensors do not have the layouts' slots.
    """
    queries = keys if queries is None else queries
    if q.shape[2] != queries.slots or k.shape[2] != keys.slots:
        raise InputError(
            f"attention: queries of {q.shape[2]} and keys of {k.shape[2]} slots, expected {queries.slots} and "
            f"{keys.slots} as laid out"
        )
    if not q.shape[0] or not q.shape[2]:
        return q
    if keys.padding or queries.padding:
        q, k, v = (x[:, :, : where.unpadded.slots] for x, where in ((q, queries), (k, keys), (v, keys)))
        return F.pad(attend(q, k, v, pattern, keys.unpadded, queries.unpadded, layer), (0, 0, 0, queries.padding))
    recorder = None if torch.compiler.is_compiling() else _RECORDER.get()
    if recorder is not None:
        recorder(AttentionRecord(layer, q, k, v, pattern, keys, queries))
    while True:
        backend = dispatch(pattern, queries, keys, q)
        try:
            return backend(q, k, v, pattern, queries, keys)
        except BackendFailed as failure:
            _FAILED.add(backend.name)
            warnings.warn(f"attention back end {backend.name} does not run here, others do: {failure}", stacklevel=2)
