"""Matrix products of attention on a CPU, by the faster of torch's two libraries."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.tokens.cache import ForkSafeLock

Shape = tuple[int, int, int]
Product = Callable[..., Tensor]


@dataclass
class _Shapes:
    # None: the first ones are prepared, as many as memory may go to.
    ever_new: bool | None = None
    full: bool = False


# Of the process and not of a thread: heads run on threads of their own.
_SHAPES = _Shapes()


@contextlib.contextmanager
def expected_shapes(*, ever_new: bool) -> Iterator[None]:
    """Inside, every size takes the same product, whatever the process saw before: a number that is measured, and a run
    that goes on in another process, are the same to the last bit.

    Args:
        ever_new: images of ever other sizes are expected, as of files: oneDNN prepares a kernel for each shape and
            keeps it, which takes longer than it saves, and hundreds of megabytes (docs/LOG.md).
    """
    before, _SHAPES.ever_new = _SHAPES.ever_new, ever_new
    try:
        yield
    finally:
        _SHAPES.ever_new = before


# oneDNN keeps a kernel for each shape, .35 to .95 MB, and gives none back before 1,024 of them: grids of six sizes are
# about a hundred shapes, whose products then take half of what torch's own take on an AMD processor (docs/LOG.md).
_MOST_PREPARED = 192
_PREPARED: set[Shape] = set()
_PREPARING = ForkSafeLock()


def are_plain() -> bool:
    """Whether all products are torch's own here."""
    return bool(_SHAPES.ever_new)


def product_of(shapes: Set[Shape]) -> Product:
    """The product that a set of shapes takes, always the same one in a process: `matmul_t` for the first sizes
    that there are, as many as its kernels may take memory for, and torch's own for those that come after.

    Args:
        shapes: (m, n, k) of all products of that size.
    """
    if _SHAPES.ever_new is not None:
        return plain if _SHAPES.ever_new else matmul_t
    with _PREPARING.lock:
        new = shapes - _PREPARED
        # What is full stays full: a size must not change from one library to the other.
        if _PREPARED and len(_PREPARED) + len(new) > _MOST_PREPARED:
            _SHAPES.full = True
        if new and _SHAPES.full:
            return plain
        _PREPARED.update(new)
        return matmul_t


def plain(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """`matmul_t` by torch's own product."""
    return torch.mm(a, b.t()) if bias is None else torch.addmm(bias, a, b.t())


def matmul_t(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a @ b^T: [m, k] and [n, k] -> [m, n], plus a bias [n] where there is one.

    torch.mm computes float32 with MKL, which takes its slow path on AMD processors (100 against 220 GFLOP/s on one
    core, docs/LOG.md), and gives every thread its own team of threads. Here it is oneDNN, by a private operator of
    torch, or torch.mm where a release of torch has it no longer.
    """
    operator = None if _SHAPES.ever_new else _onednn()
    if operator is not None and a.dtype == torch.float32:
        return operator(a, b, bias, "none", [], "")
    return plain(a, b, bias)


@functools.cache
def _onednn():
    """oneDNN's linear layer, or None where this torch has none that works."""
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        operator = torch.ops.mkldnn._linear_pointwise
        probe = operator(torch.ones(2, 3), torch.ones(4, 3), None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return None
    return operator if torch.equal(probe, torch.full((2, 4), 3.0)) else None


def has_onednn() -> bool:
    """Whether this torch has oneDNN's product."""
    return _onednn() is not None
