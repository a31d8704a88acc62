"""A mask for each class by tokens of the classes, which attend to the patches: Segmenter's decoder."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sightline.encodings import create_encoding
from sightline.errors import InputError
from sightline.io.config import config_dataclass
from sightline.models.block import Block
from sightline.models.config import Heads, Hidden, Layers, ViTConfig, Width
from sightline.models.dense_head import BiasOptions, DenseHead, on_grids, scatter_to_grid
from sightline.models.init import init_weights
from sightline.models.trunk import Trunk
from sightline.tokens.layout import TokenLayout


@config_dataclass
class SegmenterOptions(BiasOptions):
    """Of `SegmenterHead`.

    Attributes:
        layers: of the decoder.
        dim: its width; None takes the trunk's.
        heads: attention heads; None takes heads of 64 channels.
        hidden: channels of its MLPs; None takes 4 dim.
    """

    layers: Layers = 2
    dim: Width | None = None
    heads: Heads | None = None
    hidden: Hidden | None = None


class SegmenterHead(DenseHead):
    """The mask transformer (Strudel et al. 2021, section 3.2; rstrudel/segmenter, `MaskTransformer`).

    A token of each class goes through blocks together with the projected patches of one image. A class's logit of a
    patch is the cosine of their projections, normed over the classes afterwards; maps are on the patch grid. Without
    the public code's dropout. Patches that were dropped are not attended to.
    """

    name: ClassVar[str] = "segmenter"
    supports_token_dropping: ClassVar[bool] = True
    Options: ClassVar[type] = SegmenterOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        options: SegmenterOptions = self.options
        dim, layers, classes = options.dim or config.dim, options.layers, config.num_classes
        heads, hidden = options.heads or max(dim // 64, 1), options.hidden or 4 * dim
        if dim % heads:
            said = f"head_options.heads {heads}: must divide the decoder's dim {dim}"
            raise InputError(said, field="heads", value=heads)
        own = ViTConfig(dim=dim, depth=layers, heads=heads, mlp_ratio=hidden / dim, norm_eps=1e-5)
        self.proj_dec = nn.Linear(config.dim, dim)
        self.cls_emb = nn.Parameter(torch.randn(classes, dim))
        self.blocks = Trunk(Block(own, layer) for layer in range(layers))
        self.decoder_norm = nn.LayerNorm(dim, eps=1e-5)
        self.proj_patch, self.proj_classes = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.mask_norm = nn.LayerNorm(classes, eps=1e-5)
        # Nothing says where a patch stands: the trunk did.
        self.encoding = create_encoding("none", depth=layers, heads=heads, dim=dim)
        # As the trunk's: the public code's std of 0.02 is for wide models.
        init_weights(self)
        nn.init.constant_(self.mask_norm.bias[:1], options.background_bias)

    def maps(self, patches: list[Tensor], layout: TokenLayout) -> list[Tensor]:
        # Attention without positions does not ask for an order: classes may stand before the patches.
        every = layout.patches_only().with_prefix(len(self.cls_emb))
        tokens = every.join(self.proj_dec(torch.cat(patches, dim=1)), self.cls_emb)
        tokens = self.decoder_norm(self.blocks(tokens, every, self.encoding.hooks))
        found = []
        for image, segment in zip(every.split(tokens), every.segments, strict=True):
            classes, here = image.split((len(self.cls_emb), segment.patches), dim=1)
            logits = _unit(self.proj_patch(here)) @ _unit(self.proj_classes(classes)).mT
            found.append(scatter_to_grid(self.mask_norm(logits), segment))
        return on_grids(found, layout)


def _unit(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
