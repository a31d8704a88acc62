"""Who computes attention: `plan_attention` decides all that depends on Python values, and gives a call that takes
tensors alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention import varlen
from sightline.attention.flex import (
    DTYPES,
    MIN_HEAD_DIM,
    MIN_SLOTS,
    TILE,
    has_triton,
    plan_flex,
    supports_pattern,
)
from sightline.attention.pattern import Pattern
from sightline.attention.sdpa import EagerCall, plan_sdpa
from sightline.errors import InputError, unknown_name_error
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

T = TypeVar("T")

BACKENDS = ("flex", "varlen", "tiles", "products", "sdpa")
"""By which attention can be computed; the last supports every call."""

AttentionCall = Callable[[Tensor, Tensor, Tensor], Tensor]
"""What `plan_attention` gives: (q, k, v) -> the output, [rows, heads, slots, head_dim] each."""

_FORCED: ContextVar[str] = ContextVar("sightline_backend", default="auto")


class AttentionSpec(NamedTuple):
    """What is known of queries, keys and values before they are computed.

    Attributes:
        dtype: of the values; plain: they are no tensors of a subclass.
    """

    device: torch.device
    dtype: torch.dtype
    heads: int
    head_dim: int
    plain: bool = True

    @classmethod
    def of_values(cls, v: Tensor) -> AttentionSpec:
        """Of values [rows, heads, slots, head_dim], and of queries and keys like them."""
        return cls(v.device, v.dtype, v.shape[1], v.shape[-1], type(v) in (Tensor, nn.Parameter))

    @classmethod
    def of(cls, tokens: Tensor, heads: int, head_dim: int) -> AttentionSpec:
        """Of what linear layers make of these tokens."""
        kind, dtype = tokens.device.type, tokens.dtype
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(kind)
        return cls(tokens.device, dtype, heads, head_dim, type(tokens) in (Tensor, nn.Parameter))


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """One call of attention, before it is computed: its arguments, without padding.

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


@contextmanager
def _set(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def record_attention(recorder: Callable[[AttentionRecord], None] | None) -> AbstractContextManager[None]:
    """Inside, every call of attention in this thread is shown to `recorder` first, to nobody where it is None; no
    compiled program is looked into.

    What heads do is computed from queries, keys and the pattern, by blocks if need be: no back end keeps its scores.
    """
    return _set(_RECORDER, recorder)


def use_backend(name: str) -> AbstractContextManager[None]:
    """Inside, the back end `name` computes attention wherever it supports it; `auto` leaves the choice to the rules.

    Raises:
        InputError: there is no such back end; names the nearest.
    """
    if name not in ("auto", *BACKENDS):
        raise unknown_name_error("back end", name, ["auto", *BACKENDS])
    return _set(_FORCED, name)


def _forced() -> str:
    # A compiler cannot look into a context variable, and takes `sdpa` in any case.
    return "auto" if torch.compiler.is_compiling() else _FORCED.get()


def preferred_tile(pattern: Pattern | None, layout: TokenLayout, spec: AttentionSpec) -> Grid | None:
    """The order, as `Segment.tile`, in which attention with this pattern wants the tokens of a row-major layout."""
    # A compiled or exported program takes `sdpa`, for which the order is nothing but work.
    if torch.compiler.is_compiling() or not layout.segments or layout.axes != 2:
        return None
    return TILE if choose_backend(pattern, layout, layout, spec) == "flex" else None


def supports(name: str, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, spec: AttentionSpec) -> bool:
    """Whether `flex` or `varlen` can compute a call, exactly and with gradients. The forms of a CPU are asked image by
    image, when they are called (`sdpa.supports_form`)."""
    if not spec.plain or torch.compiler.is_compiling() or not (keys.slots and keys.rows):
        return False
    on_gpu = spec.device.type == "cuda"
    if name == "varlen":
        if pattern is not None or len(keys.segments) < 2 or not on_gpu:
            return False
        return spec.dtype in varlen.DTYPES and spec.head_dim <= varlen.MAX_HEAD_DIM and spec.head_dim % 8 == 0
    if pattern is None or queries is not keys or keys.axes != 2 or not supports_pattern(pattern, keys):
        return False
    if on_gpu:
        return has_triton() and spec.dtype in DTYPES and spec.head_dim >= MIN_HEAD_DIM
    # Without gradients, for tests.
    return spec.device.type == "cpu" and not torch.is_grad_enabled()


def choose_backend(pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, spec: AttentionSpec) -> str:
    """The back end of a call: the one that `use_backend` asks for where it supports the call, else the one that is
    faster on this device; `auto` for `cpu_form`, image by image."""
    forced = _forced()
    if forced in ("sdpa", "products", "tiles"):
        return forced
    if forced != "auto" and supports(forced, pattern, queries, keys, spec):
        return forced
    if torch.compiler.is_compiling():
        return "sdpa"
    if spec.device.type == "cpu":
        return "auto"
    # Images that are alike share a bias, and `sdpa` builds it faster than FlexAttention computes it for each of them.
    alike = len({one.cache_key for one in keys.segments}) == 1 and all(len(one.coords) == 1 for one in keys.segments)
    if not alike and keys.slots >= MIN_SLOTS and supports("flex", pattern, queries, keys, spec):
        return "flex"
    return "varlen" if supports("varlen", pattern, queries, keys, spec) else "sdpa"


def _recorded(
    call: AttentionCall, layer: int | None, pattern: Pattern | None, keys: TokenLayout, queries: TokenLayout
) -> AttentionCall:
    def recorded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # Where there still is a recorder when the call is made.
        recorder = _RECORDER.get()
        if recorder is not None and q.shape[2]:
            recorder(AttentionRecord(layer, q, k, v, pattern, keys, queries))
        return call(q, k, v)

    return recorded


@dataclass(frozen=True, eq=False)
class UnpaddedCall:
    """A call that sees no padding slots, which get zeros."""

    call: AttentionCall
    keys: TokenLayout
    queries: TokenLayout

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, (k, v) = q[:, :, : self.queries.unpadded.slots], (x[:, :, : self.keys.unpadded.slots] for x in (k, v))
        return F.pad(self.call(q, k, v), (0, 0, 0, self.queries.padding))


@dataclass(frozen=True, eq=False)
class OpaqueCall:
    """A call into which torch's compiler does not look: a program before it and one after it."""

    call: EagerCall | UnpaddedCall

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _uncompiled()(self.call, q, k, v)


@functools.cache
def _uncompiled() -> Callable[..., Tensor]:
    # Made when it is needed: it loads the compiler, which takes seconds.
    disabled: Any = torch.compiler.disable(lambda call, *tensors: call(*tensors))
    return disabled


def plan_attention(
    pattern: Pattern | None,
    keys: TokenLayout,
    queries: TokenLayout | None = None,
    *,
    spec: AttentionSpec,
    layer: int | None = None,
    compiled: bool = False,
) -> AttentionCall:
    """Decide how attention is computed, once for each layer and batch.

    Args:
        pattern: the bias, or None for none.
        keys: the layout of keys and values; queries: of the queries, where it is another one (attention pooling).
        spec: what is known of the tensors.
        layer: of the trunk, for `record_attention` alone.
        compiled: the call will be made inside a compiled program, which may know no images: what has no form for that
            becomes an `OpaqueCall`.
    """
    queries = keys if queries is None else queries
    backend = choose_backend(pattern, queries, keys, spec)
    if (keys.padding or queries.padding) and not (compiled and backend in ("flex", "varlen")):
        inner = plan_attention(pattern, keys.unpadded, queries.unpadded, spec=spec, layer=layer)
        unpadded = UnpaddedCall(inner, keys, queries)
        return OpaqueCall(unpadded) if compiled else unpadded
    if backend == "flex" and pattern is not None:
        call: AttentionCall = plan_flex(pattern, keys)
    elif backend == "varlen":
        call = varlen.plan_varlen(queries, keys)
    else:
        call = eager = EagerCall(pattern, keys, queries, backend)
        if compiled:
            ready = plan_sdpa(pattern, keys, queries, spec.heads, spec.dtype) if backend in ("auto", "sdpa") else None
            call = OpaqueCall(eager) if ready is None else ready
    if compiled:
        _mark_dynamic(call)
    if compiled or torch.compiler.is_compiling() or _RECORDER.get() is None:
        return call
    return _recorded(call, layer, pattern, keys, queries)


def _mark_dynamic(call: AttentionCall) -> None:
    """Sizes that differ from pack to pack are symbols, also in a program of numbers."""
    if isinstance(call, varlen.VarlenCall):
        for ends in (call.query_ends, call.key_ends):
            torch._dynamo.maybe_mark_dynamic(ends, 0)


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
        k: [rows, heads, key slots, head_dim], laid out as `keys`; the same images as `queries`.
        v: of the shape of k.
        pattern: as `plan_attention`.
        keys: as `plan_attention`.
        queries: as `plan_attention`.
        layer: as `plan_attention`.

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
    return plan_attention(pattern, keys, queries, spec=AttentionSpec.of_values(v), layer=layer)(q, k, v)
