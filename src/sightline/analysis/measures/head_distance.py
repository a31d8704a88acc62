"""How far apart the heads of a layer look, two by two: L1 and L2 (LookHere figure 15)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from sightline.analysis.attention_blocks import AttentionBlock
from sightline.analysis.measures.base import Measure, MeasuredQuantity, PerImage
from sightline.data.batch import Batch
from sightline.models import Model

_WORDS = (
    "averaged over pairs of heads; rows: patches; columns: all tokens, prefix tokens too; fields of view that differ "
    "make heads differ"
)


class HeadDistance(Measure):
    """The mean over queries and pairs of heads of |p_g - p_h| and of the Euclidean norm of p_g - p_h.

    L1 is from 0 to 2, L2 from 0 to the root of 2. A measure apart from `HeadDiversity`: there are 66 pairs of 12 heads.
    A model of one head has no pair, and 0.
    """

    name: ClassVar[str] = "head_distance"
    supports_windows: ClassVar[bool] = True
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "l1": MeasuredQuantity(("image", "layer"), "", f"sum of absolute differences; {_WORDS}", "layers"),
        "l2": MeasuredQuantity(("image", "layer"), "", f"Euclidean norm of the differences; {_WORDS}", "layers"),
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.l1, self.l2, self.rows = (PerImage(model.config.depth) for _ in range(3))

    def begin(self, batch: Batch) -> None:
        for one in (self.l1, self.l2, self.rows):
            one.begin(batch.layout.images)

    def attention(self, block: AttentionBlock) -> None:
        if block.layer is None:
            return
        heads = block.attention[:, :, block.prefix_queries :].unbind(1)
        l1, l2 = (torch.zeros(heads[0].shape[:2], device=heads[0].device) for _ in range(2))
        buffer = torch.empty_like(heads[0])
        for one, other in itertools.combinations(heads, 2):
            torch.sub(one, other, out=buffer)
            l2 += buffer.square().sum(-1).sqrt()
            l1 += buffer.abs_().sum(-1)
        pairs = max(1, len(heads) * (len(heads) - 1) // 2)
        self.l1.add(block.images, block.layer, l1.sum(-1) / pairs)
        self.l2.add(block.images, block.layer, l2.sum(-1) / pairs)
        self.rows.add(block.images, block.layer, torch.full(l1.shape[:-1], l1.shape[-1]))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"l1": self.l1.values / self.rows.values, "l2": self.l2.values / self.rows.values}
