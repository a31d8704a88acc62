"""Queries as tokens of the last blocks, each of which names a class and a mask: the encoder is all there is."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from sightline.attention.pattern import ImageMask, Pattern
from sightline.encodings.base import Hooks, PositionEncoding
from sightline.io.config import Count, Positive, check_value, config_dataclass
from sightline.models.config import ViTConfig
from sightline.models.dense_head import on_grids, require_complete
from sightline.models.head import TokenHead, patch_tokens
from sightline.models.heads.simple_pyramid import ChannelNorm
from sightline.tokens.layout import TokenLayout
from sightline.tokens.rng import uniform

# Of chance, beside those of the blocks.
_STREAM = 3
QueryOutputs = dict[str, Tensor]
"""What queries say of the images of one segment:

`masks` [rows, queries, height, width]: logits of whether a place is theirs, over the image;
`classes` [rows, queries, classes + 1]: logits, of which the last is that of nothing;
`earlier_masks`, `earlier_classes` [rows, blocks, queries, ...]: the same before each of the last blocks, where asked.
"""


@config_dataclass
class EomtOptions:
    """Of `EomtHead`.

    Attributes:
        queries: of each image.
        blocks: how many see them, None for a third of the trunk.
        masked: in training; masked_in_evaluation: there too.
        power: of the fading.
    """

    queries: Annotated[int, Field(ge=1, le=10_000)] = 100
    blocks: Count | None = None
    masked: bool = True
    masked_in_evaluation: bool = False
    power: Positive = 0.9


class ScaleBlock(nn.Module):
    """Twice as fine: transposed convolution, GELU, a convolution of each channel, layer norm of the channels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.ConvTranspose2d(dim, dim, 2, 2)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1, groups=dim, bias=False)
        self.norm = ChannelNorm(dim, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv2(F.gelu(self.conv1(x))))


class Queried(Hooks):
    """An encoding of a model whose images have queries before their prefix tokens: these are turned by nothing and get
    nothing added; between them and all others a pattern says what it says of prefix slots.

    Attributes:
        plain: the layout without the queries; count: of an image.
        first: the first layer that has queries, before which what is added to its tokens was added already.
        hidden: what the queries of a block may not see, as `ImageMask.values`; None for nothing. One that is computed
            again in the backward pass needs its own.
    """

    def __init__(
        self, encoding: PositionEncoding, plain: TokenLayout, count: int, first: int, hidden: list[Tensor] | None
    ) -> None:
        super().__init__(encoding)
        self.plain, self.count, self.first = plain, count, first
        self.hidden, self.heads = hidden, encoding.shape.heads

    def added(self, layer: int, layout: TokenLayout) -> Tensor | None:
        added = None if layer == self.first else super().added(layer, self.plain)
        return None if added is None else put_before(added, added.new_zeros(self.count, added.shape[-1]), self.plain)

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern | None:
        pattern = super().pattern(layer, layout)
        if self.hidden is None:
            return pattern
        masked = Pattern((ImageMask(self.hidden, self.heads),))
        return masked if pattern is None else pattern + masked


def _draws(layout: TokenLayout, place: int, number: int, queries: int) -> Tensor:
    """A number from 0 to 1 for each query of the images of a segment, by their seeds where they have some: float32
    [rows, queries, 1]."""
    device = layout.device
    if layout.seeds is None:
        return torch.rand(layout.rows, queries, 1, device=device)
    seeds = layout.seeds.unflatten(0, (layout.rows, -1))[:, place]
    return uniform(seeds[:, None, None], _STREAM, number, torch.arange(queries, device=device)[:, None])


def put_before(tokens: Tensor, first: Tensor, layout: TokenLayout) -> Tensor:
    """Tokens [rows, slots, dim] with `first` [count, dim] before those of each image."""
    first = first.to(tokens.dtype).expand(tokens.shape[0], -1, -1)
    return torch.cat([part for image in layout.split(tokens) for part in (first, image)], dim=1)


class EomtHead(TokenHead):
    """Encoder-only mask transformer (Kerssies et al. 2025, section 3; tue-mps/eomt).

    Learned queries join an image's tokens, as prefix tokens of its own, before the last `blocks` blocks of the trunk. A
    query's mask is the product of its embedding with the patches, made finer by `ScaleBlock`s to a quarter of a pixel's
    stride (to half a patch at least). While `masked`, a query sees in a block only the patches of its mask before it;
    in training that fades (section 3.3): in block i of n, a query is masked with probability (1 - t)^0.9, where t runs
    from 0 to 1 between (i + 1) / (n + 2) and (i + 2) / (n + 2) of the training (`done`), so that the last part of it is
    plain attention, as evaluation is. Draws are those of the images' seeds (`chance`).

    Gives `QueryOutputs` for each segment; takes whole images.
    """

    name: ClassVar[str] = "eomt"
    supports_token_dropping: ClassVar[bool] = False
    Options: ClassVar[type] = EomtOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        dim, blocks = config.dim, self.options.blocks
        self.blocks = max(1, config.depth // 3) if blocks is None else blocks
        check_value("blocks", self.blocks, Annotated[int, Field(le=config.depth)], "head eomt")
        self.q = nn.Embedding(self.options.queries, dim)
        self.class_head = nn.Linear(dim, config.num_classes + 1)
        layers = [layer for _ in range(3) for layer in (nn.Linear(dim, dim), nn.GELU())]
        self.mask_head = nn.Sequential(*layers[:-1])
        doublings = max(1, int(math.log2(config.patch_size)) - 2)
        self.upscale = nn.Sequential(*(ScaleBlock(dim) for _ in range(doublings)))

    def predict(self, model: Any, rows: Tensor, layout: TokenLayout) -> list[QueryOutputs]:
        require_complete(self.name, layout)
        tokens, first = model.embed(rows, layout), len(model.blocks) - self.blocks
        if first:
            tokens = model.blocks.collect(tokens, [first - 1], layout, model.encoding.hooks)[-1]
        # What queries say before the first block is read of tokens that know where they stand.
        added = model.encoding.hooks.added(first, layout) if layout.segments else None
        tokens = tokens if added is None else tokens + added.to(tokens.dtype)
        plain, count = layout.unpadded, self.q.num_embeddings
        joined = plain.with_prefix(count)
        tokens = put_before(tokens, self.q(torch.arange(count, device=layout.device)), layout)
        said: list[list[QueryOutputs]] = []
        masks = self.options.masked if self.training else self.options.masked_in_evaluation
        for number in range(self.blocks):
            hidden = None
            if masks:
                said.append(self(model.norm(tokens), joined))
                hidden = self._hidden(said[-1], joined, number)
            encoding = Queried(model.encoding, plain, count, first, hidden)
            tokens = model.blocks.layer(first + number, tokens, joined, encoding)
        last = self(model.norm(tokens), joined)
        for segment, found in enumerate(last if said else []):
            for name in ("masks", "classes"):
                found[f"earlier_{name}"] = torch.stack([one[segment][name] for one in said], dim=1)
        return last

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[QueryOutputs]:
        """Normed tokens [rows, slots, dim], each image's queries first, to what they say."""
        found = []
        for image, patches in zip(layout.split(tokens), on_grids(patch_tokens(tokens, layout), layout), strict=True):
            queries = image[:, : self.q.num_embeddings]
            masks = torch.einsum("bqc,bchw->bqhw", self.mask_head(queries), self.upscale(patches))
            found.append({"masks": masks, "classes": self.class_head(queries)})
        return found

    def masked_share(self, number: int) -> float:
        """With which probability a query is masked in the last blocks' block of this number, from 0."""
        if not self.training:
            return 1.0
        # From (number + 1) parts of the training on, within one part of it.
        behind = self.done * (self.blocks + 2) - (number + 1)
        return (1 - min(max(behind, 0.0), 1.0)) ** self.options.power

    def _hidden(self, said: list[QueryOutputs], layout: TokenLayout, number: int) -> list[Tensor] | None:
        """The patches that are not in a query's mask, and their bias; None where every query sees all."""
        share = self.masked_share(number)
        if not share:
            return None
        values = []
        for place, (one, segment) in enumerate(zip(said, layout.segments, strict=True)):
            masks = one["masks"].detach().float()
            seen = F.interpolate(masks, size=tuple(segment.grid), mode="bilinear", align_corners=False).flatten(2) > 0
            if share < 1:
                seen = seen | (_draws(layout, place, number, seen.shape[1]) > share)
            if not segment.row_major:
                seen = seen[..., segment.indices[0]]
            bias = torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, -torch.inf)
            prefix = layout.num_prefix_tokens
            values.append(F.pad(bias, (prefix, 0, 0, prefix - bias.shape[1])).unsqueeze(1))
        return values
