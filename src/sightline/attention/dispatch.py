"""Who computes attention: one function for a CPU, one for a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.cpu import has_amx
from sightline.attention.flex import TILE, attend_flex, prefers_flex, supports_flex
from sightline.attention.pattern import Pattern
from sightline.attention.sdpa import attend_eager, supports_form
from sightline.attention.varlen import attend_varlen, supports_varlen
from sightline.distributed import machine
from sightline.errors import InputError, unknown_name_error
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

T = TypeVar("T")

CpuForm = Literal["sdpa", "products", "tiles"]
BACKENDS = ("flex", "varlen", "tiles", "products", "sdpa")
"""By which attention can be computed; the last supports every call."""

# Fewest tokens of an image at which tiles pay, and at which plain products pay on AMD processors (docs/LOG.md).
_TILES_FROM = 800
_PRODUCTS_FROM = 400

_FORCED: ContextVar[str] = ContextVar("sightline_backend", default="auto")


def cpu_form(
    pattern: Pattern | None,
    tokens: int,
    dtype: torch.dtype,
    *,
    training: bool,
    amd: bool | None = None,
    amx: bool | None = None,
) -> CpuForm:
    """The form that computes an image on a CPU.

    Args:
        tokens: of the image; of a pack each run of alike images is asked for by itself.
        dtype: of queries, keys and values; training: gradients are wanted.
        amd, amx: the processor's maker, and whether it has AMX; None for those of this one.
    """
    amd = machine.cpu_vendor() == "amd" if amd is None else amd
    amx = has_amx() if amx is None else amx
    low = dtype == torch.bfloat16
    if low and amx:
        # The fused kernel multiplies by AMX tiles.
        return "products" if training and tokens < _PRODUCTS_FROM else "sdpa"
    if pattern is not None and pattern.directed and tokens >= _TILES_FROM:
        return "tiles"
    if (low and training) or (amd and tokens >= _PRODUCTS_FROM):
        return "products"
    return "sdpa"


def _forced() -> str:
    # A compiler cannot look into a context variable, and takes `sdpa` in any case.
    return "auto" if torch.compiler.is_compiling() else _FORCED.get()


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
    if name not in ("auto", *BACKENDS):
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


@contextmanager
def computed_again(backend: str) -> Iterator[None]:
    """Inside, what was computed once is computed again for the backward pass: by that back end, as `use_backend`, and
    shown to no recorder a second time."""
    with _set(_FORCED, backend), _set(_RECORDER, None):
        yield


def supports(name: str, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, q: Tensor) -> bool:
    """Whether a back end can compute a call, exactly and with gradients.

    Args:
        q: the queries, for their device and dtype; its values are not read.
    """
    if name == "flex":
        return supports_flex(pattern, queries, keys, q)
    if name == "varlen":
        return supports_varlen(pattern, keys, q)
    pairs = zip(queries.segments, keys.segments, strict=True)
    return all(supports_form(name, pattern, *pair, queries is keys, q) for pair in pairs)


def dispatch(pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, q: Tensor) -> str:
    """The back end of a call: the one that `use_backend` asks for where it supports the call, else the one that is
    faster on this device; `auto` for `cpu_form`, image by image.

    Args:
        q: the queries, for their device and dtype; its values are not read.
    """
    forced = _forced()
    if forced != "auto" and supports(forced, pattern, queries, keys, q):
        return forced
    if torch.compiler.is_compiling():
        return "sdpa"
    if q.device.type == "cpu":
        return "auto"
    if prefers_flex(pattern, keys, q.device) and supports_flex(pattern, queries, keys, q):
        return "flex"
    return "varlen" if supports_varlen(pattern, keys, q) else "sdpa"


def preferred_tile(pattern: Pattern | None, layout: TokenLayout) -> Grid | None:
    """The order, as `Segment.tile`, in which attention with this pattern wants the tokens of a row-major layout."""
    # A compiled or exported program takes `sdpa`, for which the order is nothing but work.
    if torch.compiler.is_compiling() or not layout.segments or layout.axes != 2:
        return None
    forced = _forced()
    wanted = forced == "flex" or (forced == "auto" and prefers_flex(pattern, layout, layout.device))
    return TILE if wanted else None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None,
    keys: TokenLayout,
    queries: TokenLayout | None = None,
    layer: int | None = None,
) -> Tensor:
    """Attention of each image's queries over its own keys: softmax(q k^T / sqrt(head_dim) + bias) v.

    No images give no outputs; padding slots get zeros, and no back end sees them.

    Args:
        q: [rows, heads, query slots, head_dim], laid out as `queries`.
        k, v: [rows, heads, key slots, head_dim], laid out as `keys`; the same images as `queries`.
        pattern: the bias, or None for none.
        queries: the layout of `q` where it is not that of `k` and `v` (attention pooling).
        layer: of the trunk, for `record_attention` alone.

    Returns:
        [rows, heads, query slots, head_dim].

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
    backend = dispatch(pattern, queries, keys, q)
    if backend == "flex" and pattern is not None:
        return attend_flex(q, k, v, pattern, keys)
    if backend == "varlen":
        return attend_varlen(q, k, v, queries, keys)
    form = functools.partial(_form_of, pattern, q.dtype) if backend == "auto" else backend
    return attend_eager(q, k, v, pattern, queries, keys, form)


def _form_of(pattern: Pattern | None, dtype: torch.dtype, tokens: int) -> CpuForm:
    return cpu_form(pattern, tokens, dtype, training=torch.is_grad_enabled())
