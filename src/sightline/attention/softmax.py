"""The softmax of scores that are logarithms to base 2, in place."""

from __future__ import annotations

import math

from torch import Tensor

LOG2_E = math.log2(math.e)
"""A score in nats times this is one to base 2: queries and biases are multiplied by it before the product."""
LN_2 = math.log(2)


def softmax2(scores: Tensor) -> Tensor:
    """2**scores over its sum along the last axis, where `scores` stands and given back; each row has a finite score.

    The softmax of what was multiplied by `LOG2_E`, in passes of operators that a CPU computes fast: torch's softmax
    takes 1.2 to 2.8 times as long there, by its `exp` (docs/LOG.md).
    """
    powers, sums = powers2(scores)
    return powers.mul_(sums.reciprocal_())


def powers2(scores: Tensor) -> tuple[Tensor, Tensor]:
    """2**(scores - the greatest of the row), where `scores` stands, and their sum [..., 1]."""
    # Of an image of which nothing is left there is no greatest score.
    if scores.numel():
        scores.sub_(scores.amax(dim=-1, keepdim=True)).exp2_()
    return scores, scores.sum(dim=-1, keepdim=True)
