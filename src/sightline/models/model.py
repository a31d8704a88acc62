"""What every model is to the packages around it, whatever its architecture."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from sightline.encodings import Knob
from sightline.encodings.base import PositionEncoding
from sightline.layout import TokenLayout
from sightline.models.config import ViTConfig

Images = Tensor | Sequence[Tensor]


class Model(nn.Module):
    """A function on a set of tokens that know where they stand.

    `model(images)` takes a normalised tensor [batch, channels, height, width] or a list of [channels, height, width]
    of any sizes. Both only make `model(rows, layout=...)`: flat rows of values [rows, patches, values] and the
    `TokenLayout` that says where they stand.

    Attributes:
        config: what it is made of, how its images are prepared, what its outputs are called.
        encoding: of positions.
        num_prefix_tokens: tokens of each image before those of its patches.
        num_classes: outputs of the classifier, 0 for features.
        started_anew: names of weights that were not those of the checkpoint it began with (`create_model(init_from=)`).
    """

    config: ViTConfig
    encoding: PositionEncoding
    blocks: nn.ModuleList
    num_prefix_tokens: int
    num_classes: int
    embed_dim: int
    started_anew: tuple[str, ...] = ()

    @property
    @abstractmethod
    def anchor(self) -> Tensor:
        """A weight that says where the model computes and in which precision."""

    @abstractmethod
    def prepare(self, images: Images) -> tuple[Tensor, TokenLayout]:
        """Images to flat rows of values and where they stand."""

    @abstractmethod
    def forward(self, images: Images, layout: TokenLayout | None = None) -> Any:
        """What the head gives of images, or of flat rows with `layout`."""

    @property
    def knob(self) -> Knob | None:
        """The encoding's extrapolation parameter, or None."""
        return self.encoding.knob

    def set_knob(self, value: float) -> None:
        """Set the encoding's extrapolation parameter; raises InputError where there is none or it is out of range."""
        self.encoding.set_knob(value)

    @abstractmethod
    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head for so many classes; 0 leaves the pooled features."""

    def no_weight_decay(self) -> set[str]:
        """Parameters that weight decay leaves alone."""
        return {f"encoding.{name}" for name in self.encoding.no_weight_decay()}
