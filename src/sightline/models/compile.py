"""Blocks as programs of torch's compiler: one for all layers that are alike, also while packs and sizes change."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sightline.errors import InputError
from sightline.models.model import Model

# Programs of one block: of a few sizes, with and without gradients.
_RECOMPILE_LIMIT = 16


def compile_blocks(model: Model, *, dynamic: bool = False) -> None:
    """Compile the forward pass of each block in place; `uncompile_blocks` undoes it.

    Blocks are given tensors alone, so layers share a program, and packs that are padded to one length do too. What
    wraps a block (recomputing, sharding) stays outside. On a GPU a pack is FlexAttention inside the program where its
    attention is directed, and torch's variable-length kernel where it has no pattern; attention with a large bias, and
    with one made of what images show, is computed outside of it.

    Args:
        model: with weights where it will compute.
        dynamic: sizes are symbols, for runs that show another size at every step. A program of symbols rounds
            otherwise than one of numbers, so this is said and not found out.

    Raises:
        InputError: this machine has no compiler for the model's device.
    """
    _check_compiler(model.anchor.device)
    known = inspect.signature(torch.compile).parameters
    limit: Any = {"recompile_limit": _RECOMPILE_LIMIT} if "recompile_limit" in known else {}
    for block in model.blocks:
        block.forward = _one_line_errors(torch.compile(block.forward, dynamic=dynamic, **limit))
    model.blocks.compiled = True


def uncompile_blocks(model: Model) -> None:
    """Give back the blocks' own forward passes."""
    for block in model.blocks:
        vars(block).pop("forward", None)
    model.blocks.compiled = False


def _one_line_errors(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    from torch._dynamo.exc import TorchDynamoException

    def compiled(*args: Any) -> Tensor:
        try:
            return forward(*args)
        except TorchDynamoException as error:
            line = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise InputError(f"compile true: torch cannot compile a block here ({line}; expected false)") from None

    return compiled


def _check_compiler(device: torch.device) -> None:
    """Refuse before hours of work what the first step would."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        found, needed = has_triton(), "triton, which compiles for GPUs"
    else:
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            found, needed = bool(get_cpp_compiler()), ""
        except (InvalidCxxCompiler, RuntimeError):
            found, needed = False, "a C++ compiler"
    if not found:
        raise InputError(f"compile true: {needed} is not there (expected false, or install it)")
