"""What a back end promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from sightline.attention.costs import sparse_choice
from sightline.attention.kernel import custom_kernels_allowed
from sightline.attention.pattern import Pattern
from sightline.tokens.grid import Grid
from sightline.tokens.layout import Segment, TokenLayout


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


class OfTiles(Backend):
    """One for directed patterns on a CPU, which leaves out what a tile of queries does not see: which of them is taken
    hangs on what they cost here (`attention.costs`)."""

    @abstractmethod
    def attend_grid(self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, segment: Segment, prefix: int) -> Tensor:
        """Attention of one grid's images.

        Args:
            q, k, v: [rows, heads, prefix + cells, head_dim].

        Returns:
            [rows, prefix + cells, heads, head_dim].
        """

    def supports(self, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, q: Tensor) -> bool:
        return (
            pattern is not None
            and pattern.directed
            and queries is keys
            and keys.axes == 2
            and custom_kernels_allowed(q)
            and all(segment.row_major for segment in keys.segments)
        )

    def runs_on(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def pays(self, pattern: Pattern | None, keys: TokenLayout, q: Tensor) -> bool:
        assert pattern is not None
        images = len(keys.segments)
        return sparse_choice(pattern, keys.slots // images, q.shape[0] * images, q.dtype, q.shape[-1]) == self.name

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout
    ) -> Tensor:
        assert pattern is not None
        prefix, each = keys.num_prefix_tokens, [x.split(keys.seqlens, dim=2) for x in (q, k, v)]
        outs = [
            self.attend_grid(of_q, of_k, of_v, pattern, segment, prefix)
            for of_q, of_k, of_v, segment in zip(*each, keys.segments, strict=True)
        ]
        return (outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)).transpose(1, 2)
