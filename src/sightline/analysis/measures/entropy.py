"""How widely heads look: the entropy of their attention (Zhai et al. 2023, attention entropy collapse)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from sightline.analysis.attention_blocks import AttentionBlock
from sightline.analysis.measures.base import Measure, MeasuredQuantity, PerImage
from sightline.data.batch import Batch
from sightline.models import Model

_WORDS = "rows: patches; columns: all tokens, prefix tokens too"


class Entropy(Measure):
    """H = -sum_k p_k log p_k of what each patch attends to, averaged over patches.

    What a mask hides has no weight and adds nothing; `of_visible` takes each query's entropy against the log of the
    number of tokens that it may see, so that a field of view alone makes no head look narrow.
    """

    name: ClassVar[str] = "entropy"
    supports_windows: ClassVar[bool] = True
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "entropy": MeasuredQuantity(("image", "layer", "head"), "nats", _WORDS, "layers"),
        "of_visible": MeasuredQuantity(
            ("image", "layer", "head"),
            "fraction",
            f"of each query over the log of how many tokens it may see (1: all that it sees alike), averaged over "
            f"those that see more than one; {_WORDS}",
            "layers",
        ),
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        shape = model.config.depth, model.config.heads
        self.entropy, self.fraction, self.asking, self.choosing = (PerImage(*shape) for _ in range(4))

    def begin(self, batch: Batch) -> None:
        for one in (self.entropy, self.fraction, self.asking, self.choosing):
            one.begin(batch.layout.images)

    def attention(self, block: AttentionBlock) -> None:
        if block.layer is None:
            return
        entropy = block.entropy[..., block.prefix_queries :]
        visible = block.visible[..., block.prefix_queries :].expand_as(entropy)
        chooses = visible > 1
        fraction = torch.where(chooses, entropy / visible.clamp(min=2).log(), 0)
        self.entropy.add(block.images, block.layer, entropy.sum(-1))
        self.fraction.add(block.images, block.layer, fraction.sum(-1))
        self.asking.add(block.images, block.layer, torch.full(entropy.shape[:-1], entropy.shape[-1]))
        self.choosing.add(block.images, block.layer, chooses.sum(-1))

    def arrays(self) -> dict[str, np.ndarray]:
        # Where nobody has a choice there is no width: 0.
        return {
            "entropy": self.entropy.values / self.asking.values,
            "of_visible": self.fraction.values / np.maximum(self.choosing.values, 1),
        }
