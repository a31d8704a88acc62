"""The softmax of scores that are logarithms to base 2, in place."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

LOG2_E = math.log2(math.e)
"""A score in nats times this is one to base 2: queries and biases are multiplied by it before the product."""
LN_2 = math.log(2)

# Rows whose powers sum to less may have lost some, and with more their product with values might overflow.
_LEAST, _MOST = 2.0**-70, 2.0**64


def softmax2(scores: Tensor) -> Tensor:
    """2**scores over its sum along the last axis, where `scores` stands and given back; each row has a finite score.

    The softmax of what was multiplied by `LOG2_E`, in passes of operators that a CPU computes fast: torch's softmax
    takes 1.2 to 2.8 times as long there, by its `exp` (docs/LOG.md).
    """
    # Of an image of which nothing is left there is no greatest score.
    if scores.numel():
        scores.sub_(scores.amax(dim=-1, keepdim=True)).exp2_()
    return scores.mul_(scores.sum(dim=-1, keepdim=True).reciprocal_())


def stable_exp2(make: Callable[[], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """2**scores times a factor for each row, their sums [..., 1], and the logarithms of the sums of 2**scores.

    The factor is 1, which saves the two passes that take the greatest of a row away, wherever these sums tell that no
    power of a row overflowed and none that matters was lost: a row's own scores decide, and no other row's.

    Args:
        make: gives the scores [rows, keys], to be written to; the same at every call.
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
