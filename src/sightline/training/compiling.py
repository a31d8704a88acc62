"""Blocks as programs of torch's compiler, while a run trains."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sightline.errors import InputError
from sightline.models import Model

# Programs of one block: for each size, and for layers whose attention differs.
_MOST = 64


@contextlib.contextmanager
def compiled_blocks(model: Model, device: torch.device) -> Iterator[None]:
    """Inside, each block's forward pass is compiled; what wraps a block (recomputing, sharding) stays outside of that.

    Args:
        device: where it computes.

    Raises:
        InputError: this machine has no compiler for it.
    """
    _check_compiler(device)
    known = inspect.signature(torch.compile).parameters
    limit: Any = {"recompile_limit": _MOST} if "recompile_limit" in known else {}
    for block in model.blocks:
        block.forward = _named(torch.compile(block.forward, **limit))
    try:
        yield
    finally:
        for block in model.blocks:
            del block.forward


def _named(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same, whose compiler's faults are one line."""
    from torch._dynamo.exc import TorchDynamoException

    def named(*given: Any) -> Tensor:
        try:
            return forward(*given)
        except TorchDynamoException as error:
            line = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise InputError(f"compile true: torch cannot compile a block here ({line}; expected false)") from None

    return named


def _check_compiler(device: torch.device) -> None:
    """Refuse before hours of work what the first step would."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        there, what = has_triton(), "triton, which compiles for GPUs"
    else:
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            there, what = bool(get_cpp_compiler()), ""
        except (InvalidCxxCompiler, RuntimeError):
            there, what = False, "a C++ compiler"
    if not there:
        raise InputError(f"compile true: {what} is not there (expected false, or install it)")
