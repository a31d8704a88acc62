"""Float32 matrix products of AMD processors by oneDNN, through the one private operator of torch that is called here.

torch computes float32 products with MKL, which takes a slow path on AMD processors (100 against 220 GFLOP/s on one
core, docs/explanation/decisions/onednn.md). The choice depends on shapes alone. oneDNN keeps a kernel of .35 to
.95 MB for each shape; `ONEDNN_PRIMITIVE_CACHE_CAPACITY` bounds how many.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.distributed import machine
from sightline.tokens.cache import is_plain_cpu_tensor, is_traced

# Read by torch's library at its first oneDNN call.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")

# Up to so many rows of a pack are rounded up to a multiple of 16.
_FEW = 64


def matmul_t(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a @ b^T: [m, k] and [n, k] -> [m, n], plus a bias [n] where there is one; without gradients."""
    if a.dtype == torch.float32 and _is_preferred():
        return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return torch.mm(a, b.t()) if bias is None else torch.addmm(bias, a, b.t())


def _is_preferred() -> bool:
    return machine.cpu_vendor() == "amd" and torch.backends.mkldnn.is_available()


def linear(layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """`layer(x)` of a linear layer, or of whatever stands in its place: a quantised one, one with an adapter.

    Args:
        bias: [outputs], added where the layer itself has none.
    """
    compiled = torch.compiler.is_compiling()
    if type(layer) is not nn.Linear or not (compiled or _has_plain_forward(layer)):
        return layer(x) if bias is None else layer(x) + bias
    if compiled and bias is None:
        return layer(x)
    return affine(x, layer.weight, layer.bias if bias is None else bias)


def _has_plain_forward(layer: nn.Module) -> bool:
    """Whether a call is that of the class's `forward`: accelerate's hooks put one of their own into the module."""
    if "forward" in vars(layer) or layer._compiled_call_impl is not None:  # pyright: ignore[reportPrivateUsage]
        return False
    hooks = layer._forward_pre_hooks or layer._forward_hooks or layer._backward_pre_hooks or layer._backward_hooks
    return not (hooks or nn.modules.module._has_any_global_hook())  # pyright: ignore[reportPrivateUsage]


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b as `F.linear`, by oneDNN where it applies: [..., inputs] -> [..., outputs]."""
    plain = all(is_plain_cpu_tensor(one) and one.dtype == torch.float32 and one.numel() for one in (x, weight))
    if torch.compiler.is_compiling() or not plain or not weight.is_contiguous() or x.dim() < 2:
        return F.linear(x, weight, bias)
    if is_traced() or torch.is_autocast_enabled("cpu") or not _is_preferred():
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, weight, bias)):
        return _Linear.apply(x, weight, bias)  # pyright: ignore[reportReturnType]
    return _linear(x, weight, bias)


def _matrix(x: Tensor) -> Tensor:
    """[..., channels] -> [slots, channels], dense: of rows with gaps oneDNN computes by its reference, a hundred times
    as slowly. One row of more than 64 tokens gets up to a thirtieth more slots, of zeros, since packs have ever other
    lengths, for each of which oneDNN would prepare kernels."""
    rows = x.flatten(0, -2)
    if x.dim() == 2 or x.shape[0] == 1:
        step = 16 if len(rows) <= _FEW else 1 << max(0, len(rows).bit_length() - 6)
        if missing := -len(rows) % step:
            rows = F.pad(rows, (0, 0, 0, missing))
    return rows.contiguous()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = matmul_t(_matrix(x), weight, bias)
    return out[: x.numel() // x.shape[-1]].unflatten(0, x.shape[:-1])


class _Linear(torch.autograd.Function):
    """`_linear` with its gradients, which are products too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        of_x, of_weight, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        return _linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        # By torch's own products where their gradients are asked for.
        times = F.linear if torch.is_grad_enabled() else matmul_t
        rows, of_x, of_weight = _matrix(grad), None, None
        if weight is not None:
            of_x = times(rows, weight.t())[: grad.numel() // grad.shape[-1]].unflatten(0, grad.shape[:-1])
        if x is not None:
            of_weight = times(rows.t(), _matrix(x).t())
        return of_x, of_weight, rows.sum(0) if ctx.needs_input_grad[2] else None
