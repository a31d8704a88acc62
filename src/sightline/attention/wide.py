"""Numbers that are no matter of half precision: tables, angles, places and losses."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 where that is given."""
    return torch.promote_types(dtype, torch.float32)


def at_least_float32(values: Tensor) -> Tensor:
    """The same in float32 at least."""
    return values.to(wide_dtype(values.dtype))


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Float32 stays float32 inside: a table's rule is part of the weights, and phases do not fit in 16 bits."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()
