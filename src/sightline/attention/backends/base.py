"""What a back end promises."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from sightline.attention.pattern import Pattern
from sightline.layout import TokenLayout


class Backend(ABC):
    """Computes softmax(q k^T / sqrt(head_dim) + bias) v, each image for itself."""

    @abstractmethod
    def supports(self, pattern: Pattern | None, keys: TokenLayout) -> bool:
        """Whether this back end can compute `pattern` on this layout, exactly and with gradients."""

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
        """
