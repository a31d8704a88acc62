"""One place that chooses who computes attention."""

from __future__ import annotations

from torch import Tensor

from sightline.attention.backends.base import Backend
from sightline.attention.backends.dense import Dense
from sightline.attention.pattern import Pattern
from sightline.layout import TokenLayout

# In order of preference; the last supports everything.
BACKENDS: dict[str, Backend] = {"dense": Dense()}


def dispatch(pattern: Pattern | None, keys: TokenLayout) -> Backend:
    """The first back end that supports this pattern on this layout."""
    return next(backend for backend in BACKENDS.values() if backend.supports(pattern, keys))


def attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern | None, keys: TokenLayout, queries: TokenLayout | None = None
) -> Tensor:
    """Attention of each image's queries over its own keys; shapes as `Backend.__call__`.

    `queries` is the layout of `q` where it is not that of `k` and `v` (attention pooling).
    """
    return dispatch(pattern, keys)(q, k, v, pattern, keys if queries is None else queries, keys)
