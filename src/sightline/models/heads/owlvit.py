"""OWL-ViT's head: each token names a class and a box, which begins at the token's own place."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.wide import at_least_float32
from sightline.errors import InputError
from sightline.io.config import config_dataclass
from sightline.models.box_head import BoxHead, BoxOutputs, centres, grid_sides
from sightline.models.config import ViTConfig, Width
from sightline.models.head import patch_tokens
from sightline.models.text import TextConfig, TextTower
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment


@config_dataclass
class OwlVitOptions:
    """`query_dim`: width of the queries of classes; None takes the model's. `text`: a text tower that makes queries of
    words; it does not learn, and neither do the queries. None for learned queries."""

    query_dim: Width | None = None
    text: TextConfig | None = None


class _Boxes(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense0, self.dense1 = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.dense2 = nn.Linear(dim, 4)
        # Every box begins as its bias: the token's own patch.
        nn.init.normal_(self.dense2.weight, std=0.01)
        nn.init.zeros_(self.dense2.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense2(F.gelu(self.dense1(F.gelu(self.dense0(x)))))


class _Classes(nn.Module):
    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.dense0, self.logit_shift, self.logit_scale = nn.Linear(dim, width), nn.Linear(dim, 1), nn.Linear(dim, 1)
        for layer, bias in ((self.logit_shift, -0.45), (self.logit_scale, 9.0)):
            # Cosines of nearly 0 then begin as scores of about `PRIOR`.
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(layer.bias, bias)

    def forward(self, x: Tensor, queries: Tensor) -> Tensor:
        """(cosine to each query + shift) (elu(scale) + 1): [..., classes]."""
        told = self.dense0(x)
        cosines = _unit(told) @ _unit(queries).mT
        return (cosines + self.logit_shift(x)) * (F.elu(self.logit_scale(x)) + 1)


class OwlVitHead(BoxHead):
    """Simple open-vocabulary detection (Minderer et al. 2022, section 3.1 and appendix A2). The query of a class is
    learned, or the embedding of its name where there is a text tower.

    Every patch is multiplied by the CLS token (by the mean of the image's patches where there is none) and normed.
    Boxes are sigmoid(MLP + bias) as fractions of the image, whose bias is the token's far corner and the size of one
    patch; they are given in patch units. Patches that were dropped say nothing; the others keep their own places.
    Objects are matched as a set.
    """

    name: ClassVar[str] = "owlvit"
    matching: ClassVar = "sets"
    Options: ClassVar[type] = OwlVitOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        width = self.options.query_dim or config.dim
        self.has_class_token = config.has_class_token
        self.layer_norm = nn.LayerNorm(config.dim, eps=1e-5)
        self.box_head = _Boxes(config.dim)
        self.class_head = _Classes(config.dim, width)
        self.queries = nn.Parameter(torch.randn(config.num_classes, width))
        text = self.options.text
        self.text = None if text is None else TextTower(text)
        self.text_proj = None if text is None else nn.Linear(text.dim, width, bias=False)
        if self.text is not None and self.text_proj is not None:
            for frozen in (*self.text.parameters(), *self.text_proj.parameters(), self.queries):
                frozen.requires_grad_(False)

    def encode_text(self, texts: Any) -> Tensor:
        """Texts, as `TextTower.forward` takes them, to unit vectors [texts, query_dim], which are queries.

        Raises:
            InputError: the head has no text tower.
        """
        if self.text is None or self.text_proj is None:
            raise InputError("head owlvit: reads no texts (expected head_options.text)")
        return F.normalize(at_least_float32(self.text_proj(self.text(texts))), dim=-1)

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[BoxOutputs]:
        found = []
        images = zip(layout.split(tokens), patch_tokens(tokens, layout), layout.segments, strict=True)
        for slots, patches, segment in images:
            whole = slots[:, :1] if self.has_class_token else patches.mean(dim=1, keepdim=True)
            merged = self.layer_norm(patches * whole)
            centre, size = (at_least_float32(self.box_head(merged)) + box_bias(segment)).sigmoid().chunk(2, dim=-1)
            sides = grid_sides(segment, layout)
            # The formula has x first, and here y is.
            corners = torch.cat((centre - size / 2, centre + size / 2), dim=-1)[..., [1, 0, 3, 2]]
            found.append({"logits": self.class_head(merged, self.queries), "boxes": corners * sides})
        return found


def box_bias(segment: Segment) -> Tensor:
    """What is added to the box of each patch before the sigmoid, (centre x, centre y, width, height): float32
    [1 or rows, patches, 4], patches row-major where they are all here.

    The centre begins at the far corner of the token's patch, ((col + 1) / cols, (row + 1) / rows), and the size is that
    of a patch (google-research/scenic, `projects/owl_vit`: `compute_box_bias`, whose 1 / cols for both sides is right
    on squares alone).
    """
    grid = segment.grid.planar("head owlvit")
    sides = torch.tensor([grid.cols, grid.rows], device=segment.coords.device)
    corners = (centres(segment).flip(-1) + 0.5) / sides
    return torch.cat((_logit(corners), _logit(torch.ones_like(corners) / sides)), dim=-1)


def _logit(x: Tensor, least: float = 1e-4) -> Tensor:
    """ln(x + least) - ln(1 - x + least), as OWL-ViT keeps it finite."""
    return (x + least).log() - torch.log1p(-x + least)


def _unit(x: Tensor) -> Tensor:
    return x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-6)
