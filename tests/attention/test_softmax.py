"""The softmax to base 2, beside torch's."""

from __future__ import annotations

import pytest
import torch

from sightline.attention.softmax import LN_2, LOG2_E, powers2, softmax2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 17), (1, 1), (4, 65)])
def test_it_is_the_softmax(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    scores = 20 * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    # Masked, beyond what an exponential holds, and apart by more than it tells.
    scores[..., 1:3] = torch.tensor([-torch.inf, 3e4], dtype=dtype)[: scores[..., 1:3].shape[-1]]
    found = softmax2(LOG2_E * scores)
    torch.testing.assert_close(found, scores.softmax(-1), rtol=2e-5 if dtype == torch.float32 else 1e-12, atol=1e-30)


def test_it_stands_where_the_scores_stood() -> None:
    scores = torch.randn(3, 5)
    expected = (scores * LN_2).softmax(-1)
    powers, sums = powers2(scores)
    assert powers is scores
    assert powers.amax() == 1
    torch.testing.assert_close(powers / sums, expected)
    assert softmax2(scores).data_ptr() == scores.data_ptr()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 0, 0)])
def test_nothing_is_left(shape: tuple[int, ...]) -> None:
    assert softmax2(torch.zeros(shape)).shape == shape
