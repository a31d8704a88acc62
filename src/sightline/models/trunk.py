"""Blocks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.attention import asked_backend, computed_again, is_recorded
from sightline.encodings.hooks import Hooks
from sightline.models.block import Attention, Block, Dropout, DropPath, LayerScale, Mlp, SwiGlu
from sightline.models.hooks import is_bare_inside
from sightline.models.norm import PLAIN_NORMS, HeadNorm
from sightline.tokens.cache import is_traced
from sightline.tokens.layout import TokenLayout

# What a block is made of, each of which computes a token of itself alone, but for attention.
_OF_A_TOKEN = {
    Block, Attention, Mlp, SwiGlu, LayerScale, DropPath, Dropout, HeadNorm,
    nn.Linear, *PLAIN_NORMS,
}  # fmt: skip


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

    def gives_first(self, layout: TokenLayout) -> bool:
        """Whether `of_first` is there for such images: the last block is a plain one of plain parts, and nobody
        looks at what the trunk or it does with all tokens, or counts it."""
        if torch.compiler.is_compiling() or not (len(self) and layout.segments and layout.num_prefix_tokens):
            return False
        # A layer that computes what others have not given would not find all tokens.
        known = all(type(one) in _OF_A_TOKEN for one in self[-1].modules())
        return (
            known and type(self) is Trunk and not is_traced() and not is_recorded() and is_bare_inside(self[-1], self)
        )

    def of_first(self, tokens: Tensor, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """What `forward` gives the first token of each image, of which the last layer computes no other: [rows, slots,
        dim], as embedded -> [rows, images of a row, dim]. Where a class token alone is pooled that is a twelfth of a
        ViT-B less, and the same function of the images (ViT equation 4)."""
        for layer in range(len(self) - 1):
            tokens = self.layer(layer, tokens, layout, encoding)
        last: Any = self[-1]
        return self._called(last.of_first, len(self) - 1, tokens, layout, encoding)

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
        return self._called(self[layer], layer, tokens, layout, encoding)

    def _called(
        self, block: Callable[..., Tensor], layer: int, tokens: Tensor, layout: TokenLayout, encoding: Hooks
    ) -> Tensor:
        given = tokens, layer, self.layout_after(layer - 1, layout), encoding
        if self.activation_checkpointing and torch.is_grad_enabled():
            # What is computed again is computed by the same back end, and recorded no second time.
            again = partial(computed_again, asked_backend())
            return checkpoint(  # type: ignore[return-value]
                block, *given, use_reentrant=False, context_fn=lambda: (nullcontext(), again())
            )
        return block(*given)
