"""What is wrong with an encoding of whoever runs, in one line that names its class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from sightline.errors import InputError


def check_written(encoding: Any, base: type, methods: Sequence[str], arguments: str) -> None:
    """Refuse a class that has none of these methods of `base` of its own, of which the first is asked for."""
    cls = type(encoding)
    if all(getattr(cls, name) is getattr(base, name) for name in methods):
        raise InputError(f"encoding {encoding.name}: class {cls.__name__} has no {methods[0]}{arguments}; write it")


def check_embedding(encoding: Any, given: object, grid: Sequence[int]) -> None:
    """Refuse what is no embedding of each patch of a grid, [cells, dim]."""
    wanted = (math.prod(grid), encoding.shape.dim)
    if not isinstance(given, Tensor) or given.shape != wanted:
        said = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
        cells, of = " x ".join(map(str, grid)), "rows * cols" if len(grid) == 2 else "cells"
        where = f"encoding {encoding.name}: the embedding of class {type(encoding).__name__} on a grid of {cells}"
        raise InputError(f"{where} is {said} (expected [{of}, dim] = {list(wanted)})")
