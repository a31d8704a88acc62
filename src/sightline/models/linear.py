"""Linear layers on a CPU: in float32 by the faster of torch's two libraries, as attention's products are, and in
bfloat16 by whatever multiplies the same numbers faster here."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.costs import product_of, takes_onednn, takes_wide
from sightline.attention.products import Product, plain
from sightline.models.hooks import is_bare
from sightline.tokens.cache import is_plain_cpu_tensor, is_traced

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
    products take it too (`attention.products`); the last bits are other ones than those of torch's own product. In
    bfloat16 the same rounded numbers are multiplied in float32 and the sums rounded once, as torch's own product does,
    where that is the faster one: some processors have the instructions of bfloat16 and are slow with them.
    """
    if torch.compiler.is_compiling() or not all(map(_multiplies, (x, weight))) or not weight.is_contiguous():
        return F.linear(x, weight, bias)
    precision = _precision(x, weight, bias)
    low = precision == torch.bfloat16
    if is_traced() or not (takes_wide() if low else precision == torch.float32 and takes_onednn()):
        return F.linear(x, weight, bias)
    if low:
        # With a history, as autocast's own.
        x, weight = x.to(torch.bfloat16), weight.to(torch.bfloat16)
        bias = None if bias is None else bias.to(torch.bfloat16)
    # Of rows with gaps between them oneDNN computes by its reference, a hundred times as slowly.
    x = x.contiguous()
    outputs, inputs = weight.shape
    count, products_learn = _slots(x), torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    shapes = {(count, outputs, inputs)}
    if products_learn:
        shapes |= {(count, inputs, outputs), (outputs, inputs, count)}
    product = product_of(shapes)
    if product is plain and not low:
        return F.linear(x, weight, bias)
    # The operator has no gradients of its own: of a bias that learns alone there would be none, without a word.
    learns = products_learn or (torch.is_grad_enabled() and bias is not None and bias.requires_grad)
    computed = _Affine.apply if learns else _computed
    with _without_autocast():
        return computed(x, weight, bias, product)  # type: ignore[return-value]


_without_autocast = functools.partial(torch.autocast, "cpu", enabled=False)


def _multiplies(x: Tensor) -> bool:
    """Whether it is plain rows of float32 or bfloat16 on a CPU."""
    return is_plain_cpu_tensor(x) and x.dtype in (torch.float32, torch.bfloat16) and x.dim() > 1 and x.numel() > 0


def _precision(x: Tensor, weight: Tensor, bias: Tensor | None) -> torch.dtype | None:
    """In which torch would multiply them; None where it would refuse."""
    if torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu")
    return x.dtype if all(one is None or one.dtype == x.dtype for one in (weight, bias)) else None


def _slots(x: Tensor) -> int:
    """How many rows of x [..., channels] oneDNN multiplies: in one row of more than 64 tokens up to a thirtieth more
    than there are.

    Packs have ever other lengths, and numbers of images, for each of which oneDNN would prepare kernels and keep them.
    """
    count = x.numel() // x.shape[-1]
    if x.dim() > 2 and x.shape[0] > 1:
        return count
    step = 16 if count <= _FEW else 1 << max(0, count.bit_length() - 6)
    return -(-count // step) * step


def _matrix(x: Tensor, slots: int) -> Tensor:
    """[..., channels] -> [slots, channels] in float32, dense, with zeros at the end."""
    rows = x.flatten(0, -2).float()
    return rows.contiguous() if len(rows) == slots else F.pad(rows, (0, 0, 0, slots - len(rows)))


def _computed(x: Tensor, weight: Tensor, bias: Tensor | None, product: Product) -> Tensor:
    count = x.numel() // x.shape[-1]
    rows = _matrix(x, count if product is plain else _slots(x))
    out = product(rows, weight.float(), None if bias is None else bias.float())
    return out.to(x.dtype)[:count].unflatten(0, x.shape[:-1])


class _Affine(torch.autograd.Function):
    """`_computed` with its gradients, which are products too; what is kept is in the precision that was given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, product: Product) -> Tensor:  # type: ignore[override]
        of_x, of_weight, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        ctx.product = product
        return _computed(x, weight, bias, product)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        # Gradients of gradients are asked for: these are torch's own products.
        product = _differentiable if torch.is_grad_enabled() else ctx.product
        count = grad.numel() // grad.shape[-1]
        slots = count if ctx.product is plain else _slots(grad)
        of_x = of_weight = None
        with _without_autocast():
            rows = _matrix(grad, slots)
            if weight is not None:
                of_x = product(rows, weight.t().float())[:count].unflatten(0, grad.shape[:-1])
            if x is not None:
                of_weight = product(rows.t(), _matrix(x, slots).t())
            # Autograd rounds each to the precision of what it is of.
            return of_x, of_weight, rows.sum(0) if ctx.needs_input_grad[2] else None, None


def _differentiable(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.t()
