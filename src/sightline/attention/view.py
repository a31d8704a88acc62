"""A field of view: which displacements a head sees."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class FieldOfView:
    """A field of view: up to two closed half-planes a * dy + b * dx >= 0, joined by all or any.

    Attributes:
        planes: integer normals (a, b), or of as many numbers as there are axes; none means that everything is seen.
        join: `all` is their intersection, `any` their union.
        within: normals of half-spaces in which a key must be besides.
    """

    planes: tuple[tuple[int, ...], ...] = ()
    join: Literal["all", "any"] = "all"
    within: tuple[tuple[int, ...], ...] = ()

    def visible(self, *shift: Tensor) -> Tensor:
        """Whether a key at displacement (dy, dx), or (dt, dy, dx), is seen: bool, the broadcast shape of these."""

        def beyond(normal: tuple[int, ...]) -> Tensor:
            return functools.reduce(torch.add, [a * d for a, d in zip(normal, shift, strict=True)]) >= 0

        everything = torch.ones_like(functools.reduce(torch.add, shift), dtype=torch.bool)
        seen = [beyond(normal) for normal in self.planes] or [everything]
        joined = functools.reduce(torch.logical_and if self.join == "all" else torch.logical_or, seen)
        return functools.reduce(torch.logical_and, [beyond(normal) for normal in self.within], joined)
