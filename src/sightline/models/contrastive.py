"""Heads of image-text models: the shared space of two towers, and the classifier that words make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from sightline.attention.wide import at_least_float32
from sightline.errors import InputError
from sightline.io.config import build_config, config_dataclass
from sightline.models.config import ViTConfig, Width
from sightline.models.init import truncated_normal_
from sightline.models.text import TextConfig, TextTower

Texts = Sequence[str] | Tensor | Sequence[Sequence[int]]
MOST_SCALE = math.log(100)
"""Of `logit_scale`: beyond it training is not stable (Radford et al. 2021, section 2.5)."""


@config_dataclass
class ContrastiveOptions:
    """`head_options` of the head `contrastive`.

    Attributes:
        text: the text tower.
        embed_dim: width of the space that both towers share.
        loss: `softmax` (CLIP), or `sigmoid` (SigLIP), whose logits have a bias.
        image_proj: a linear layer of images into that space; without one the image tower has its width.
        text_proj_bias: that of texts has a bias (SigLIP).
    """

    text: TextConfig = Field(default_factory=lambda: TextConfig(pool="last"))
    embed_dim: Width = 512
    loss: Literal["softmax", "sigmoid"] = "softmax"
    image_proj: bool = True
    text_proj_bias: bool = False


class ContrastiveHead(nn.Module):
    """Pooled images to unit vectors that are compared with those of texts (CLIP, Radford et al. 2021; SigLIP, Zhai et
    al. 2023).

    A score is exp(logit_scale) times the cosine, plus `logit_bias` where the loss is `sigmoid`.

    Attributes:
        options: `ContrastiveOptions`.
        text: the `TextTower`.
        logit_scale: float32 [], ln(1 / 0.07) before training, or ln 10 with `sigmoid`; logit_bias: float32 [], -10
            before training, or None.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        options = self.options = build_config(ContrastiveOptions, config.head_options, "head contrastive")
        width = options.embed_dim
        if not options.image_proj and config.dim != width:
            raise InputError(
                f"head contrastive: image_proj false: embed_dim {width} (expected {config.dim}, its width)"
            )
        self.image_proj = nn.Linear(config.dim, width, bias=False) if options.image_proj else nn.Identity()
        self.text = TextTower(options.text)
        self.text_proj = nn.Linear(options.text.dim, width, bias=options.text_proj_bias)
        sigmoid = options.loss == "sigmoid"
        self.logit_scale = nn.Parameter(torch.tensor(math.log(10 if sigmoid else 1 / 0.07)))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0)) if sigmoid else None
        for layer in (self.image_proj, self.text_proj):
            if isinstance(layer, nn.Linear) and not layer.weight.is_meta:
                truncated_normal_(layer.weight, layer.in_features**-0.5)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        """Pooled images [images, dim] to unit vectors, float32 at least [images, embed_dim]."""
        return F.normalize(at_least_float32(self.image_proj(pooled)), dim=-1)

    def encode_text(self, texts: Texts) -> Tensor:
        """Texts, as `TextTower.forward` takes them, to unit vectors, float32 at least [texts, embed_dim]."""
        return F.normalize(at_least_float32(self.text_proj(self.text(texts))), dim=-1)

    def scale(self) -> Tensor:
        """What cosines are multiplied by: [], at most 100."""
        if self.training:
            # The weight itself, as beyond the limit it would have no gradient.
            with torch.no_grad():
                self.logit_scale.clamp_(max=MOST_SCALE)
        return at_least_float32(self.logit_scale).clamp(max=MOST_SCALE).exp()

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of unit vectors: [images, texts]."""
        scores = self.scale() * images @ texts.mT
        return scores if self.logit_bias is None else scores + self.logit_bias

    def no_weight_decay(self) -> set[str]:
        """Names of parameters, relative to this module, that weight decay leaves alone."""
        encoding = {f"text.encoding.{name}" for name in self.text.encoding.no_weight_decay()}
        return {"text.token_embed.weight", "text.attn_pool.latent", *encoding}


class CosineHead(nn.Module):
    """A classifier by cosines to a vector of each class: what a `ContrastiveHead` is for given words."""

    def __init__(self, dim: int, hidden: int | None, num_classes: int, *, bias: bool) -> None:
        super().__init__()
        width = hidden or dim
        self.in_features, self.out_features = dim, num_classes
        self.proj = nn.Linear(dim, width, bias=False) if hidden else nn.Identity()
        self.fc2 = nn.Linear(width, num_classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[images, dim] -> logits [images, classes]."""
        cosines = F.normalize(at_least_float32(self.proj(x)), dim=-1)
        # In float32 also under autocast: scores are differences of numbers near 100.
        with torch.autocast(x.device.type, enabled=False):
            return self.fc2(cosines.to(self.fc2.weight.dtype))


def text_tower_flops(options: Any) -> int:
    """Multiplications of a text of full length: of its tower and projection."""
    config = options.text
    hidden = round(config.dim * config.mlp_ratio) * (3 if config.mlp == "swiglu" else 2)
    token = config.depth * (4 * config.dim**2 + config.dim * hidden + 2 * config.length * config.dim)
    return config.length * token + config.dim * options.embed_dim
