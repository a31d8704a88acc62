"""torch's fused attention on a CPU, with the sums of its softmax and its gradient: operators with private names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.errors import InputError
from sightline.tokens.cache import is_plain_cpu_tensor, is_traced


class Kernel(NamedTuple):
    """`forward(q, k, v, attn_mask=mask)` gives the output and the logarithms of the sums [rows, heads, queries];
    `backward(grad_out, q, k, v, out, sums, 0.0, False, attn_mask=mask)` the gradients of q, k and v.

    Masks are [1 or rows, heads, queries, keys], float32 or of q's dtype, with any strides; a row that is masked whole
    gets a sum of 0.
    """

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]


@functools.cache
def fused_kernel() -> Kernel | None:
    """The operators, or None where a release of torch has them no longer."""
    name = "_scaled_dot_product_flash_attention_for_cpu"
    found = [getattr(torch.ops.aten, one, None) for one in (name, f"{name}_backward")]
    return None if None in found else Kernel(*found)  # pyright: ignore[reportArgumentType]


def custom_kernels_allowed(*tensors: Tensor) -> bool:
    """Whether attention of these may be a step of our own, which is differentiated once: they are plain tensors on a
    CPU, nothing looks for torch's operators, and its fused attention is not switched off, as it is by whoever wants
    second derivatives (`torch.nn.attention.sdpa_kernel`)."""
    if torch.compiler.is_compiling() or not all(map(is_plain_cpu_tensor, tensors)) or is_traced():
        return False
    return torch.backends.cuda.flash_sdp_enabled()


def differentiated_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The backward pass of a step of our own, which has no derivatives of its own: it says so where they are wanted.

    torch's `once_differentiable` lets `autograd.grad` leave out what cannot be differentiated, without a word.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise InputError(
                "attention: its gradients were asked for their own gradients, which these steps do not have (expected "
                "the model to be called inside torch.nn.attention.sdpa_kernel(SDPBackend.MATH), or no create_graph)"
            )
        return backward(ctx, *grads)

    return once


def in_rows(x: Tensor) -> Tensor:
    """[..., head_dim] whose channels stand side by side: the operators read no others, and do not say so."""
    return x if x.stride(-1) == 1 else x.contiguous()


def attend_with_remade(q: Tensor, k: Tensor, v: Tensor, bias: Callable[[], Tensor], wide: torch.dtype) -> Tensor:
    """Fused attention in the precision `wide` with a bias that is made for each pass and not kept between them.

    Args:
        q, k, v: [rows, heads, tokens, head_dim], on a CPU.
        bias: makes [1 or rows, heads, queries, keys], the same at every call; nothing is learned of it.

    Returns:
        [rows, heads, queries, head_dim], of q's dtype.
    """
    return _WithRemade.apply(*map(in_rows, (q, k, v)), bias, wide)  # pyright: ignore[reportReturnType]


class _WithRemade(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Callable[[], Tensor], wide: torch.dtype) -> Tensor:
        kernel = fused_kernel()
        assert kernel is not None
        out, sums = kernel.forward(q.to(wide), k.to(wide), v.to(wide), attn_mask=bias().to(wide))
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, sums)
        ctx.of = bias, wide
        return out

    @staticmethod
    @differentiated_once
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        *saved, sums = ctx.saved_tensors
        kernel, (bias, wide) = fused_kernel(), ctx.of
        assert kernel is not None
        given = [one.to(wide) for one in (grad_out, *saved)]
        found = kernel.backward(*given, sums, 0.0, False, attn_mask=bias().to(wide))
        return *(part.to(one.dtype) for part, one in zip(found, saved, strict=False)), None, None
