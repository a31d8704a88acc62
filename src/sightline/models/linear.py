"""Linear layers in float32 on a CPU by the faster of torch's two libraries, as attention's products are."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.costs import takes_onednn
from sightline.attention.products import product_of, times_transposed
from sightline.kept import is_plain, watched
from sightline.models.hooks import is_bare

# Up to so many rows of a pack are rounded up to a multiple of 16.
_FEW = 64


def linear(layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """`layer(x)` of a linear layer, or of whatever stands in its place: a quantised one, one with an adapter.

    Args:
        bias: [outputs], added where the layer itself has none.
    """
    compiled = torch.compiler.is_compiling()
    # What else a call would do is the module's business; a compiler looks for modules that it knows.
    if type(layer) is not nn.Linear or not (compiled or is_bare(layer)):
        return layer(x) if bias is None else layer(x) + bias
    if compiled and bias is None:
        return layer(x)
    return affine(x, layer.weight, layer.bias if bias is None else bias)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b, as `F.linear`: [..., inputs] -> [..., outputs].

    In float32 on a CPU oneDNN computes it where it is the faster library (`attention.costs`) and where attention's
    products take it too (`attention.products`); the last bits are other ones than those of torch's own product.
    """
    if torch.compiler.is_compiling() or not all(map(_multiplies, (x, weight))) or not weight.is_contiguous():
        return F.linear(x, weight, bias)
    if torch.is_autocast_enabled("cpu") or watched() or not takes_onednn():
        return F.linear(x, weight, bias)
    # Of rows with gaps between them oneDNN computes by its reference, a hundred times as slowly.
    x = x.contiguous()
    outputs, inputs = weight.shape
    count, products_learn = _slots(x), torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    shapes = {(count, outputs, inputs)}
    if products_learn:
        shapes |= {(count, inputs, outputs), (outputs, inputs, count)}
    if product_of(shapes) is not times_transposed:
        return F.linear(x, weight, bias)
    # The operator has no gradients of its own: of a bias that learns alone there would be none, without a word.
    learns = products_learn or (torch.is_grad_enabled() and bias is not None and bias.requires_grad)
    return _Affine.apply(x, weight, bias) if learns else _product(x, weight, bias)  # type: ignore[return-value]


def _multiplies(x: Tensor) -> bool:
    """Whether it is plain rows of float32 on a CPU."""
    return is_plain(x) and x.dtype == torch.float32 and x.dim() > 1 and x.numel() > 0


def _slots(x: Tensor) -> int:
    """How many rows of x [..., channels] are multiplied: in one row of more than 64 tokens up to a thirtieth more than
    there are.

    Packs have ever other lengths, and numbers of images, for each of which oneDNN would prepare kernels and keep them.
    """
    count = x.numel() // x.shape[-1]
    if x.dim() > 2 and x.shape[0] > 1:
        return count
    step = 16 if count <= _FEW else 1 << max(0, count.bit_length() - 6)
    return -(-count // step) * step


def _matrix(x: Tensor, slots: int) -> Tensor:
    """[..., channels] -> [slots, channels], dense, with zeros at the end."""
    rows = x.flatten(0, -2)
    return rows.contiguous() if len(rows) == slots else F.pad(rows, (0, 0, 0, slots - len(rows)))


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    count = x.numel() // x.shape[-1]
    return times_transposed(_matrix(x, _slots(x)), weight, bias)[:count].unflatten(0, x.shape[:-1])


class _Affine(torch.autograd.Function):
    """`_product` with its gradients, which are products too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        # Gradients of gradients are asked for: these are torch's own products.
        product = _differentiable if torch.is_grad_enabled() else times_transposed
        slots = _slots(grad)
        rows = _matrix(grad, slots)
        of_x = of_weight = None
        if weight is not None:
            of_x = product(rows, weight.t())[: grad.numel() // grad.shape[-1]].unflatten(0, grad.shape[:-1])
        if x is not None:
            of_weight = product(rows.t(), _matrix(x, slots).t())
        return of_x, of_weight, rows.sum(0) if ctx.needs_input_grad[2] else None


def _differentiable(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.t()
