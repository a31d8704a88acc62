"""Whether every number of what a model gives is finite."""

from __future__ import annotations

import pytest
import torch

from sightline.data.batch import is_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_whose_sum_is_beyond_the_type_are_finite(dtype):
    most = torch.finfo(dtype).max
    assert is_finite([torch.full((3, 4), most, dtype=dtype), {"counts": torch.arange(5)}, torch.empty(0)])
    assert is_finite(torch.tensor([most, most, -most, -most], dtype=dtype))


@pytest.mark.parametrize("bad", [[torch.inf], [-torch.inf], [torch.nan], [torch.inf, -torch.inf]])
def test_one_that_is_not_is_found(bad):
    values = torch.randn(7, 9)
    values.view(-1)[40 : 40 + len(bad)] = torch.tensor(bad)
    assert not is_finite({"first": torch.zeros(3), "second": [values]})
