"""Blocks, one after the other."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.attention import asked_backend, computed_again
from sightline.encodings.base import PositionEncoding
from sightline.layout import TokenLayout


class Trunk(nn.ModuleList):
    """Blocks that each call the hooks of the encoding they are given.

    Attributes:
        recomputes: the blocks' activations are computed again in the backward pass instead of kept.
    """

    recomputes = False

    def forward(self, tokens: Tensor, layout: TokenLayout, encoding: PositionEncoding) -> Tensor:
        """[rows, slots, dim] -> the same shape."""
        for layer in range(len(self)):
            tokens = self.layer(layer, tokens, layout, encoding)
        return tokens

    def taken(
        self, tokens: Tensor, layers: Collection[int], layout: TokenLayout, encoding: PositionEncoding
    ) -> list[Tensor]:
        """The outputs of some layers, counted from 0, in their order and each once; none after the last of them is run.

        Args:
            tokens: [rows, slots, dim], as embedded.
        """
        found = []
        for layer in range(max(layers) + 1):
            tokens = self.layer(layer, tokens, layout, encoding)
            if layer in layers:
                found.append(tokens)
        return found

    def layer(self, layer: int, tokens: Tensor, layout: TokenLayout, encoding: PositionEncoding) -> Tensor:
        """One block alone."""
        if not layout.segments:
            return tokens
        block, given = self[layer], (tokens, layer, layout, encoding)
        if self.recomputes and torch.is_grad_enabled():
            # What is computed again is computed by the same back end, and recorded no second time.
            again = partial(computed_again, asked_backend())
            return checkpoint(  # type: ignore[return-value]
                block, *given, use_reentrant=False, context_fn=lambda: (nullcontext(), again())
            )
        return block(*given)
