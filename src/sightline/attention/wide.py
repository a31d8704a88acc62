"""Numbers that are no matter of half precision: tables, angles, places and losses."""

import torch
from torch import Tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 where that is given."""
    return torch.promote_types(dtype, torch.float32)


def wide(values: Tensor) -> Tensor:
    """The same in float32 at least."""
    return values.to(wide_dtype(values.dtype))
