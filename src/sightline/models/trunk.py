"""Blocks, one after the other."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.attention import asked_backend, computed_again
from sightline.encodings.hooks import Hooks
from sightline.tokens.layout import TokenLayout


class Trunk(nn.ModuleList):
    """Blocks that each call the hooks of the encoding they are given.

    Attributes:
        activation_checkpointing: the blocks' activations are computed again in the backward pass instead of kept.
        takes_tiles: tokens may be laid out in tiles, as a back end wants them; not where blocks cut images themselves.
    """

    activation_checkpointing = False
    takes_tiles: ClassVar[bool] = True

    def layout_after(self, layer: int, layout: TokenLayout) -> TokenLayout:
        """Where the outputs of a layer stand, of images that were embedded as `layout`; -1 is the embedding.

        A trunk of stages merges patches on the way (Swin section 3.1); one without gives `layout` back.
        """
        return layout

    def forward(self, tokens: Tensor, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """[rows, slots, dim], as embedded -> the outputs of the last layer, which stand as `layout_after` it says."""
        for layer in range(len(self)):
            tokens = self.layer(layer, tokens, layout, encoding)
        return tokens

    def collect(self, tokens: Tensor, layers: Collection[int], layout: TokenLayout, encoding: Hooks) -> list[Tensor]:
        """The outputs of some layers, counted from 0, in their order and each once; none after the last of them is run.
        Each stands as `layout_after` its layer.

        Args:
            tokens: [rows, slots, dim], as embedded.
        """
        found = []
        for layer in range(max(layers) + 1):
            tokens = self.layer(layer, tokens, layout, encoding)
            if layer in layers:
                found.append(tokens)
        return found

    def layer(self, layer: int, tokens: Tensor, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """One block alone.

        Args:
            tokens: the outputs of the layer before.
            layout: of the images as they were embedded, whatever the layer.
        """
        if not layout.segments:
            return tokens
        given = tokens, layer, self.layout_after(layer - 1, layout), encoding
        if self.activation_checkpointing and torch.is_grad_enabled():
            # What is computed again is computed by the same back end, and recorded no second time.
            again = partial(computed_again, asked_backend())
            return checkpoint(  # type: ignore[return-value]
                self[layer], *given, use_reentrant=False, context_fn=lambda: (nullcontext(), again())
            )
        return self[layer](*given)
