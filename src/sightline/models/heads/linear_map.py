"""A label for each token by a linear layer, enlarged to the pixels afterwards: the probe."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sightline.io.config import config_dataclass
from sightline.models.batch_norm import PatchBatchNorm
from sightline.models.config import ViTConfig
from sightline.models.dense_head import BiasOptions, DenseHead, linear, on_grids, scatter_to_grid
from sightline.tokens.layout import TokenLayout


@config_dataclass
class LinearMapOptions(BiasOptions):
    """`norm`: a batch norm before the layer; and `background_bias`."""

    norm: bool = True


class LinearMapHead(DenseHead):
    """Batch norm over all patches, then linear: a logit map on the patch grid, which is enlarged bilinearly to be
    scored (LookHere section 4 and appendix A.4.5; with `norm=False` the linear decoder of Segmenter).

    In evaluation an image's map is the same in a pack; in training its statistics are those of the whole batch, and of
    a single patch those that were kept.
    """

    name: ClassVar[str] = "linear_map"
    supports_token_dropping: ClassVar[bool] = True
    Options: ClassVar[type] = LinearMapOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.norm = PatchBatchNorm(config.dim) if self.options.norm else nn.Identity()
        self.fc = linear(config, self.options.background_bias)

    def maps(self, patches: list[Tensor], layout: TokenLayout) -> list[Tensor]:
        every = torch.cat([one.flatten(0, 1) for one in patches])
        logits = self.fc(self.norm(every))
        parts = logits.split([one.shape[0] * one.shape[1] for one in patches])
        each = zip(parts, patches, layout.segments, strict=True)
        return on_grids(
            [scatter_to_grid(part.unflatten(0, one.shape[:2]), segment) for part, one, segment in each], layout
        )
