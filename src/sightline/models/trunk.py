"""Blocks, one after the other: what depends on Python values is decided here, once a layer and batch."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.attention import AttentionSpec, plan_attention, record_attention
from sightline.encodings.base import Hooks
from sightline.models.block import Block, LayerInputs
from sightline.models.stochastic import draw_noise
from sightline.tokens.layout import TokenLayout


class Trunk(nn.ModuleList):
    """Blocks, which are called with tokens and what `layer_inputs` makes of the hooks of an encoding.

    Attributes:
        activation_checkpointing: the blocks' activations are computed again in the backward pass instead of kept.
        compiled: the blocks' forward passes are compiled (`compile_blocks`), and are given tensors alone.
        takes_tiles: tokens may be laid out in tiles, as a back end wants them; not where blocks cut images themselves.
    """

    activation_checkpointing = False
    compiled = False
    takes_tiles: ClassVar[bool] = True

    def layout_after(self, layer: int, layout: TokenLayout) -> TokenLayout:
        """Where the outputs of a layer stand, of images that were embedded as `layout`; -1 is the embedding.

        A trunk of stages merges patches on the way (Swin section 3.1); one without gives `layout` back.
        """
        return layout

    def forward(self, tokens: Tensor, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """[rows, slots, dim], as embedded -> the outputs of the last layer, which stand as `layout_after` it says."""
        return self.collect(tokens, [len(self) - 1], layout, encoding)[0]

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
        """One block alone, with what the encoding adds before it, on the outputs of the layer before; `layout` is of
        the images as they were embedded, whatever the layer."""
        if not layout.segments:
            return tokens
        block: Any = self[layer]
        layout = self.layout_after(layer - 1, layout)
        added = encoding.added(layer, layout)
        tokens = tokens if added is None else tokens + added.to(tokens.dtype)
        inputs = self.layer_inputs(layer, tokens, layout, encoding)
        if layer == 0 and isinstance(block, Block):
            # After the positions, where a model has them: ViT appendix B.1.
            tokens = block.dropout(tokens, inputs.noise, 0)
        if self.activation_checkpointing and torch.is_grad_enabled():
            return checkpoint(  # type: ignore[return-value]
                block, tokens, inputs, use_reentrant=False, context_fn=lambda: (nullcontext(), record_attention(None))
            )
        return block(tokens, inputs)

    def layer_inputs(self, layer: int, tokens: Tensor, layout: TokenLayout, encoding: Hooks) -> LayerInputs:
        """What a block is given beside its tokens [rows, slots, dim], which stand as `layout` says and whose values are
        not read. An architecture whose blocks want something else says it here."""
        return self.inputs_of(layer, tokens, layout, layout, encoding)

    def inputs_of(
        self, layer: int, tokens: Tensor, images: TokenLayout, meeting: TokenLayout, encoding: Hooks, **rest: Any
    ) -> LayerInputs:
        """As `layer_inputs`, of a block in which the tokens of `meeting` meet, as windows of `images`."""
        block = self[layer]
        assert isinstance(block, Block)
        spec = AttentionSpec.of(tokens, block.attn.num_heads, block.attn.head_dim)
        rotation = encoding.rotation(layer, meeting)
        pattern = encoding.pattern(layer, meeting)
        call = plan_attention(pattern, meeting, spec=spec, layer=layer, compiled=self.compiled)
        noise = draw_noise(block.drop_path, block.dropout, layer, images, tokens.dtype)
        return LayerInputs(call, None if rotation is None else rotation.tensors(), noise, **rest)
