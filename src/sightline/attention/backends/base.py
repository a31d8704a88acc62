"""What a back end promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from sightline.attention.pattern import Pattern
from sightline.grid import Grid
from sightline.layout import TokenLayout


class BackendFailed(RuntimeError):
    """A back end found at its first use that it does not run here after all; another one can take the call."""


class Backend(ABC):
    """Computes softmax(q k^T / sqrt(head_dim) + bias) v, each image for itself.

    Attributes:
        name: as it is asked for, and as result rows name it.
        preference: of those that support a call and pay, `dispatch` takes the one with the greatest.
        tile: the order of tokens that it wants, as `Segment.tile`; None for row-major.
    """

    name: ClassVar[str]
    preference: ClassVar[int]
    tile: ClassVar[Grid | None] = None

    @abstractmethod
    def supports(self, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, q: Tensor) -> bool:
        """Whether this back end can compute `pattern` on these layouts, exactly and with gradients.

        Args:
            q: the queries, for their device and dtype; its values are not read.
        """

    def runs_on(self, device: torch.device) -> bool:
        """Whether it is meant for this device: benchmarks show those that are."""
        return True

    def orders(self, pattern: Pattern | None, layout: TokenLayout) -> bool:
        """Whether tokens of this row-major layout had better be laid out in `tile` before the first layer."""
        return False

    def pays(self, pattern: Pattern | None, keys: TokenLayout, q: Tensor) -> bool:
        """Whether it was measured to be faster here than those of a lower preference."""
        return True

    @abstractmethod
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout
    ) -> Tensor:
        """Attend.

        Args:
            q: [rows, heads, query slots, head_dim], laid out as `queries`.
            k, v: [rows, heads, key slots, head_dim], laid out as `keys`; the same images as `queries`.
            pattern: the bias, or None for none.

        Returns:
            [rows, heads, query slots, head_dim].

        Raises:
            BackendFailed: this machine cannot run it.
        """
