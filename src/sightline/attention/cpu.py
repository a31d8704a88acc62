"""What attention needs to know of a CPU: which form and precision it takes, threads, and the softmax to base 2."""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from sightline.attention.pattern import Pattern
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.io.config import Precision, check_value
from sightline.tokens.cache import is_plain_cpu_tensor, is_traced

T = TypeVar("T")

CpuForm = Literal["sdpa", "products", "tiles"]
# Fewest tokens at which tiles pay, and plain products on AMD processors (docs/explanation/decisions/cpu-forms.md).
_TILES_FROM = 800
_AMX_TILES_FROM = 3_000
_PRODUCTS_FROM = 400

LOG2_E = math.log2(math.e)
"""A score in nats times this is one to base 2: queries and biases are multiplied by it before the product."""
LN_2 = math.log(2)

# Rows whose powers sum to less may have lost some, and with more their product with values might overflow.
_LEAST, _MOST = 2.0**-70, 2.0**64

# (process, threads) -> its workers: those of the parent of a fork are not alive in the child.
_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}


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
    low, directed = dtype == torch.bfloat16, pattern is not None and pattern.directed
    if low and amx:
        # The fused kernel multiplies by AMX tiles; its bias is made twice in a training step.
        if training and directed and tokens >= _AMX_TILES_FROM:
            return "tiles"
        return "products" if training and tokens < _PRODUCTS_FROM else "sdpa"
    if directed and tokens >= _TILES_FROM:
        return "tiles"
    if (low and training) or (amd and tokens >= _PRODUCTS_FROM):
        return "products"
    return "sdpa"


def has_amx() -> bool:
    """Whether bfloat16 matrices are multiplied by AMX tiles."""
    return machine.has_cpu_feature("amx_tile")


def default_precision(device: str | torch.device) -> Literal["bfloat16", "float32"]:
    """The precision that is faster on this device, from what the device is; nothing is timed.

    On a GPU it is bfloat16 where that is native. On a CPU it is bfloat16 with AMX, or with AVX512-BF16 on an AMD
    processor; on an Intel processor without AMX float32 is the faster one (docs/explanation/decisions/cpu-forms.md).
    """
    kind = torch.device(device).type
    if kind == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        amd = machine.cpu_vendor() == "amd" and machine.has_cpu_feature("avx512_bf16")
        native = kind == "cpu" and (has_amx() or amd)
    return "bfloat16" if native else "float32"


def chosen_precision(asked: str, device: str | torch.device) -> Precision:
    """The precision of the matrix products that was asked for; for `auto` the `default_precision` of the device."""
    return default_precision(device) if asked == "auto" else check_value("precision", asked, Precision)


def custom_kernels_allowed(x: Tensor) -> bool:
    """Whether attention of this may be an autograd function of our own, which is differentiated once: it is a plain
    tensor on a CPU, nothing looks for torch's operators, and its fused attention is not switched off, as it is for
    second derivatives (`torch.nn.attention.sdpa_kernel`)."""
    if torch.compiler.is_compiling() or not is_plain_cpu_tensor(x) or is_traced():
        return False
    return torch.backends.cuda.flash_sdp_enabled()


def strictly_once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the backward pass of an autograd function that has no second derivative: asking for one is an error.

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


def empty_like_heads(x: Tensor) -> Tensor:
    """An empty tensor of that shape, [rows, heads, tokens, head_dim], with heads side by side in each token, as
    projections have and want them."""
    rows, heads, tokens, head_dim = x.shape
    return x.new_empty(rows, tokens, heads, head_dim).transpose(1, 2)


def softmax_backward(grad: Tensor, weights: Tensor) -> Tensor:
    """The gradient of scores from that of their softmax, P * (dP - sum of P * dP), where `grad` stands."""
    return torch.ops.aten._softmax_backward_data.out(grad, weights, -1, grad.dtype, grad_input=grad)


def stable_exp2(make: Callable[[], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """2**scores times a factor for each row, their sums [..., 1], and the logarithms of the sums of 2**scores.

    The factor is 1, which saves the two passes that take the greatest of a row away, wherever these sums tell that no
    power of a row overflowed and none that matters was lost: a row's own scores decide, and no other row's.

    Args:
        make: gives the scores [..., rows, keys], to be written to; the same at every call.
    """
    powers = make()
    sums = powers.exp2_().sum(dim=-1, keepdim=True)
    if not powers.numel():
        return powers, sums, sums
    least, most = torch.aminmax(sums)
    if float(least) > _LEAST and float(most) < _MOST:
        return powers, sums, sums.log2()
    # What is no number stays so.
    fits = (sums > _LEAST) & (sums < _MOST)
    scores = make()
    shift = scores.amax(dim=-1, keepdim=True).masked_fill_(fits, 0.0)
    powers = scores.sub_(shift).exp2_()
    sums = powers.sum(dim=-1, keepdim=True)
    return powers, sums, sums.log2().add_(shift)


def run_parallel(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Call `work` on each item, in no order, on as many Python threads as torch computes with, each operator on one
    core; without gradients.

    An attention head in tiles is hundreds of short operators. Spread over cores one by one they wait for each other;
    heads side by side do not (docs/explanation/decisions/threads.md). An error is raised after all have ended.
    """
    inference = torch.is_inference_mode_enabled()

    def alone(item: T) -> None:
        # Modes belong to a thread, so a worker has not those of its caller.
        with torch.inference_mode(inference), torch.no_grad(), torch.autocast("cpu", enabled=False):
            work(item)

    items = list(items)
    threads = torch.get_num_threads()
    if threads == 1 or len(items) == 1:
        for item in items:
            alone(item)
        return
    pool = _pool(threads)
    futures = [pool.submit(alone, item) for item in items]
    for error in [future.exception() for future in futures]:
        if error is not None:
            raise error


def _pool(threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), threads)
    # Looked up once: another thread, with another number, may put its pool in the place of this one meanwhile.
    pool = _POOLS.get(key)
    if pool is None:
        started = threading.Barrier(threads + 1)

        def use_one_core() -> None:
            # Asking first makes torch settle this thread's number, which the next line then changes for good.
            torch.get_num_threads()
            torch.set_num_threads(1)
            started.wait()

        pool = ThreadPoolExecutor(threads, "sightline-attention", initializer=use_one_core)
        for _ in range(threads):
            pool.submit(int)
        started.wait()
        # The workers' numbers are their own, but also went into torch's default for threads to come.
        torch.set_num_threads(threads)
        _POOLS.clear()
        _POOLS[key] = pool
    return pool
