"""Attention written out, as measures are compared with: every pair of tokens of every image, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.images import Normalised
from sightline.attention import AttentionRecord, record_attention
from sightline.models import create_model
from sightline.models.model import Model
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters


@dataclass
class Seen:
    """One image's attention in a layer: [heads, queries, keys], and where its patches stand."""

    layer: int | None
    image: int
    attention: np.ndarray
    visible: np.ndarray
    prefix_q: int
    prefix_k: int
    queries: np.ndarray
    keys: np.ndarray
    grid: tuple[int, ...]

    @property
    def of_patches(self) -> np.ndarray:
        return self.attention[:, self.prefix_q :]


def written_out(calls: Sequence[AttentionRecord]) -> Iterator[Seen]:
    for call in calls:
        at_q = at_k = 0
        for number, (query, key) in enumerate(zip(call.queries.segments, call.keys.segments, strict=True)):
            asking, asked = call.queries.seqlens[number], call.keys.seqlens[number]
            before_q, before_k = call.queries.num_prefix_tokens, call.keys.num_prefix_tokens
            for row in range(call.q.shape[0]):
                q, k = call.q[row, :, at_q : at_q + asking].double(), call.k[row, :, at_k : at_k + asked].double()
                scores = torch.einsum("hqd,hkd->hqk", q, k) / q.shape[-1] ** 0.5
                bias = torch.zeros(1, 1, 1, 1)
                if call.pattern is not None:
                    bias = call.pattern.bias(query, key, before_q, before_k, image=number)
                bias = bias[row if len(bias) > 1 else 0].expand_as(scores)
                attention = (scores + bias.double()).softmax(-1)
                yield Seen(
                    call.layer, row * len(call.keys.segments) + number, attention.detach().numpy(),
                    (bias > -1e30).numpy(), before_q, before_k, _places(query.coords, row), _places(key.coords, row),
                    tuple(key.grid),
                )  # fmt: skip
            at_q, at_k = at_q + asking, at_k + asked


def _places(coords: Tensor, row: int) -> np.ndarray:
    return coords[row if len(coords) > 1 else 0].numpy()


def tiny(encoding: str, **options: object) -> Model:
    settings = {"depth": 3, "heads": 4, "dim": 48, "num_classes": 5, "image_size": (12, 20), **options}
    return randomise_parameters(create_model("vit_micro_patch4", encoding=encoding, **settings)).eval()


def plain(model: Model, images: int = 2, size: tuple[int, int] = (12, 20)) -> Normalised:
    return _batch(*model.cut(torch.randn(images, 3, *size)))


def packed(model: Model) -> Normalised:
    return _batch(*model.cut([torch.randn(3, *size) for size in ((12, 20), (24, 8), (4, 12), (12, 20))]))


def padded(model: Model) -> Normalised:
    batch = packed(model)
    rows = torch.nn.functional.pad(batch.inputs, (0, 0, 0, 5))
    return _batch(rows, batch.layout.pad_to(batch.layout.slots + 5))


def dropped(model: Model) -> Normalised:
    """Other patches of each image of a uniform batch; the centre, 7 of 15, is in all."""
    batch = plain(model)
    kept = torch.tensor([[0, 3, 7, 11, 14, 6], [7, 2, 9, 12, 13, 1]])
    rows = batch.inputs.gather(1, kept.unsqueeze(-1).expand(-1, -1, batch.inputs.shape[-1]))
    return _batch(rows, batch.layout.keep(kept))


def dropped_pack(model: Model) -> Normalised:
    batch = packed(model)
    kept = [torch.tensor(one) for one in ([7, 0, 14, 2], [7, 3, 11], [1, 0, 2], [4, 5, 7])]
    starts = [0, 15, 27, 30]
    index = torch.cat([one + start for one, start in zip(kept, starts, strict=True)])
    return _batch(batch.inputs[:, index], batch.layout.keep(kept))


def _batch(rows: Tensor, layout: TokenLayout) -> Normalised:
    names = [f"image {number}" for number in range(layout.images)]
    return Normalised(rows, layout, {}, torch.arange(layout.images), names, [{}] * layout.images)


def recorded(model: Model, batch: Normalised) -> list[AttentionRecord]:
    """The calls of a pass of its own."""
    calls: list[AttentionRecord] = []
    with torch.inference_mode(), record_attention(calls.append):
        rows, layout = model.in_attention_order(batch.inputs, batch.layout)
        model.pool(model.encode(rows, layout), layout)
    return calls


def by_layer(seen: Sequence[Seen], of: Callable[[Seen], np.ndarray]) -> np.ndarray:
    """[images, layers, ...] of what `of` gives of each image's attention in a layer of the trunk."""
    trunk = [one for one in seen if one.layer is not None]
    images, layers = 1 + max(one.image for one in trunk), 1 + max(one.layer or 0 for one in trunk)
    found = {(one.image, one.layer): of(one) for one in trunk}
    assert len(found) == len(trunk) == images * layers
    return np.array([[found[image, layer] for layer in range(layers)] for image in range(images)])
