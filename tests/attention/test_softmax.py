"""The softmax to base 2, beside torch's."""

from __future__ import annotations

import pytest
import torch

from sightline.attention.cpu import LN_2, stable_exp2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", [0.0, 30.0, -60.0, -80.0, 90.0, 3e4, -3e4])
def test_powers_and_their_sums_are_the_softmax(level: float, dtype: torch.dtype) -> None:
    """Whatever the level of a row: powers of 2 hold no 3e4, and lose -3e4."""
    scores = 5 * torch.randn(6, 40, dtype=dtype, generator=torch.Generator().manual_seed(0))
    scores[::2] += level
    scores[:, 3] = -torch.inf
    powers, sums, logs = stable_exp2(lambda: scores.clone())
    exact = LN_2 * scores.double()
    # A score of 3e4 has ten bits behind its point left.
    bound = 3e-3 if level**2 > 1e6 and dtype == torch.float32 else 3e-5
    torch.testing.assert_close((powers / sums).double(), exact.softmax(-1), rtol=bound, atol=0)
    torch.testing.assert_close(LN_2 * logs.double(), exact.logsumexp(-1, keepdim=True), rtol=1e-5, atol=1e-5)
    # Their product with values has room.
    assert float(sums.amax()) <= 2.0**64
