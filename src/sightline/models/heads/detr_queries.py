"""Learned queries that each ask an image for one object."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sightline.attention import attend
from sightline.attention.wide import at_least_float32
from sightline.io.config import config_dataclass
from sightline.models.block import Mlp
from sightline.models.box_head import BoxHead, BoxOutputs, centres, grid_sides, mlp, prior_bias, small_linear
from sightline.models.config import Layers, ViTConfig
from sightline.models.head import patch_tokens
from sightline.tokens.layout import TokenLayout

# Of the sines of places: a turn is the whole image, and finer ones by powers down to a hundredth.
_FINEST = 100.0


@config_dataclass
class DetrQueriesOptions:
    """`queries`: the most objects of an image; `layers`: of the decoder."""

    queries: Annotated[int, Field(ge=1, le=10_000)] = 32
    layers: Layers = 3


class _Layer(nn.Module):
    """Queries ask each other, then the patches of their own image, then themselves (DETR's decoder, pre-norm)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        dim = config.dim
        self.heads = config.heads
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
        self.qk, self.v, self.proj = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.cross_q, self.cross_k = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.cross_v, self.cross_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.mlp = Mlp(config, config.mlp_hidden)

    def forward(
        self, x: Tensor, where: Tensor, patches: Tensor, places: Tensor, queries: TokenLayout, keys: TokenLayout
    ) -> Tensor:
        """Queries [rows, images * queries, dim] whose anchors are at `where`, patches [rows, patches, dim] at `places`,
        both as vectors that are added to what is compared."""
        normed = self.norm1(x)
        q, k = self.qk(normed + where).chunk(2, dim=-1)
        x = x + self.proj(self._asked(q, k, self.v(normed), queries, queries))
        q, k = self.cross_q(self.norm2(x) + where), self.cross_k(patches + places)
        x = x + self.cross_proj(self._asked(q, k, self.cross_v(patches), queries, keys))
        return x + self.mlp(self.norm3(x))

    def _asked(self, q: Tensor, k: Tensor, v: Tensor, queries: TokenLayout, keys: TokenLayout) -> Tensor:
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (q, k, v))
        return attend(q, k.to(q.dtype), v.to(q.dtype), None, keys, queries=queries).transpose(1, 2).flatten(2)


class DetrQueriesHead(BoxHead):
    """As DETR (Carion et al. 2020), with a learned anchor for each query that every layer moves (Liu et al. 2022,
    DAB-DETR, section 4).

    An anchor's middle is a fraction of its image, so that the queries are spread over an image of any size; its height
    and width are exp(x) in patch units, so that an object at twice the size has twice the patches. Each query reads one
    image's patches alone, in a pack too; patches that were dropped are not read. In training the layers before the last
    are asked too (`earlier_logits`, `earlier_boxes` [rows, layers - 1, queries, ...]).
    """

    name: ClassVar[str] = "detr_queries"
    matching: ClassVar = "sets"
    Options: ClassVar[type] = DetrQueriesOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        dim, queries = config.dim, self.options.queries
        self.queries = nn.Parameter(torch.randn(queries, dim) * 0.02)
        # Middles spread over the image; sizes begin at e patches.
        middles = torch.logit(0.1 + 0.8 * torch.rand(queries, 2))
        self.anchors = nn.Parameter(torch.cat((middles, torch.ones(queries, 2)), dim=-1))
        self.from_place = mlp(dim, dim, dim, 2)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(self.options.layers))
        self.norm = nn.LayerNorm(dim)
        self.classes = small_linear(dim, config.num_classes, prior_bias())
        self.moves = mlp(dim, dim, 4)
        for part in (self.moves[-1].weight, self.moves[-1].bias):
            nn.init.zeros_(part)  # type: ignore[arg-type]

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[BoxOutputs]:
        dim, images, count = tokens.shape[-1], len(layout.segments), len(self.queries)
        queries, keys = layout.query_layout(count), layout.patches_only()
        patches = torch.cat(patch_tokens(tokens, layout), dim=1)
        sides = [grid_sides(one, layout) for one in layout.segments]
        middles = torch.cat([centres(one) / side[:2] for one, side in zip(layout.segments, sides, strict=True)], dim=1)
        places = _sines(middles, dim).to(patches.dtype)
        x = self.queries.expand(layout.rows, images, -1, -1).flatten(1, 2)
        anchors = at_least_float32(self.anchors).expand(layout.rows, images, -1, -1).flatten(1, 2)
        scale = torch.stack(sides).repeat_interleave(count, dim=0)
        said: list[tuple[Tensor, Tensor]] = []
        for layer in self.layers:
            where = self.from_place(_sines(anchors[..., :2].sigmoid(), dim).to(x.dtype))
            x = layer(x, where, patches, places, queries, keys)
            normed = self.norm(x)
            moved = anchors + at_least_float32(self.moves(normed))
            said.append((self.classes(normed), _boxes(moved, scale)))
            anchors = moved.detach()
        # [rows, layers, queries of all images, ...], then image by image.
        logits, boxes = (torch.stack(kind, dim=1).split(count, dim=2) for kind in zip(*said, strict=True))
        return [self._found(*one) for one in zip(logits, boxes, strict=True)]

    def _found(self, logits: Tensor, boxes: Tensor) -> BoxOutputs:
        found = {"logits": logits[:, -1], "boxes": boxes[:, -1]}
        if self.training and logits.shape[1] > 1:
            found |= {"earlier_logits": logits[:, :-1], "earlier_boxes": boxes[:, :-1]}
        return found


def _boxes(anchors: Tensor, sides: Tensor) -> Tensor:
    """Anchors [rows, n, 4] (logits of the middle, logarithms of height and width) to boxes in patch units; `sides`
    [n, 4] of each one's grid."""
    middle, half = anchors[..., :2].sigmoid() * sides[:, :2], anchors[..., 2:].clamp(max=10).exp() / 2
    return torch.cat((middle - half, middle + half), dim=-1)


def _sines(places: Tensor, dim: int) -> Tensor:
    """Places (y, x) as fractions of an image [..., 2] to sines and cosines of many wave lengths: [..., dim]."""
    waves = max(dim // 4, 1)
    turns = torch.logspace(0, math.log10(_FINEST), waves, device=places.device)
    angles = (at_least_float32(places).unsqueeze(-1) * turns * math.pi).flatten(-2)
    both = torch.cat((angles.sin(), angles.cos()), dim=-1)[..., :dim]
    return torch.nn.functional.pad(both, (0, dim - both.shape[-1]))
