"""How unlike the heads of a layer look: the generalised Jensen-Shannon divergence (LookHere figures 4, 15 and 16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from sightline.analysis.attention_blocks import AttentionBlock
from sightline.analysis.measures.base import Measure, MeasuredQuantity, PerImage
from sightline.data.batch import Batch
from sightline.models import Model

_WORDS = "rows: patches; columns: all tokens, prefix tokens too; fields of view that differ make heads differ"


class HeadDiversity(Measure):
    """The divergence of the heads' attention (Lin 1991, equation 5.1, equal weights), averaged over queries:

        JSD = H(mean_h p_h) - mean_h H(p_h)

    0 where all heads look alike, log(heads) where no two look at one token. What a mask hides has no weight.
    """

    name: ClassVar[str] = "head_diversity"
    supports_windows: ClassVar[bool] = True
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "jsd": MeasuredQuantity(
            ("image", "layer"), "nats", f"Jensen-Shannon divergence of the heads; {_WORDS}", "layers"
        ),
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.jsd, self.rows = PerImage(model.config.depth), PerImage(model.config.depth)

    def begin(self, batch: Batch) -> None:
        for one in (self.jsd, self.rows):
            one.begin(batch.layout.images)

    def attention(self, block: AttentionBlock) -> None:
        if block.layer is None:
            return
        mean = block.mean[:, block.prefix_queries :]
        # What nobody looks at is 0 log 0, which is 0.
        together = -mean.clamp(min=torch.finfo(mean.dtype).tiny).log_().mul_(mean).sum(-1)
        each = block.entropy[..., block.prefix_queries :].mean(1)
        self.jsd.add(block.images, block.layer, (together - each).sum(-1))
        self.rows.add(block.images, block.layer, torch.full(each.shape[:-1], each.shape[-1]))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"jsd": self.jsd.values / self.rows.values}
