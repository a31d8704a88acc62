"""What an embedder is: images to flat rows of values, which workers do, and these to tokens, which the model does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from sightline import registry
from sightline.errors import InputError
from sightline.layout import TokenLayout
from sightline.patchify import Cutter

if TYPE_CHECKING:
    from sightline.models.config import ViTConfig


class Embedder(nn.Module):
    """Flat rows to tokens; one in a file of `models/embedders/`, or of a plug-in.

    Its options are `config.embedder_options`. The encoding, the prefix tokens and the layout are the model's.

    Attributes:
        name: as `create_model(embedder=)` and `config.json` say it.
        cutter: the half without weights, by which this model's images become rows.
    """

    name: ClassVar[str]

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.cutter = self.cutter_of(config)
        # As timm's patch embedding says it; other grids need nothing changed.
        self.patch_size = (config.patch_size, config.patch_size)
        self.grid_size = tuple(config.train_grid)
        self.num_patches = config.train_grid.cells

    @classmethod
    def cutter_of(cls, config: ViTConfig) -> Cutter:
        """Images to rows: pure, pickled to workers, and known without a model."""
        return Cutter(config.patch_size, config.channels, config.fit)

    @classmethod
    def computed_by(cls, config: ViTConfig) -> Mapping[str, Any]:
        """Those of its options that say what it computes, the defaults written out where it can."""
        return config.embedder_options

    def inflated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of this embedder, which cuts clips, from those of one of images.

        Args:
            state: by name, relative to this module.
        """
        return dict(state)

    @abstractmethod
    def forward(self, rows: Tensor, layout: TokenLayout) -> Tensor:
        """[rows, patches, values] in the order of the layout -> [rows, patches, dim]; no padding on either side."""

    def images(self, rows: Tensor, layout: TokenLayout) -> list[Tensor]:
        """The pixels that were cut: [rows, channels, height, width] for each segment, for layers that look beyond a
        patch.

        Raises:
            InputError: patches of an image were dropped.
        """
        if not all(segment.complete for segment in layout.segments):
            raise InputError(f"embedder {self.name}: needs whole images (expected no dropped patches)")
        bare = layout.patches_only()
        pieces = bare.split(bare.row_major(rows))
        return [self.cutter.uncut(piece, segment.grid) for piece, segment in zip(pieces, bare.segments, strict=True)]

    def tokens(self, maps: Sequence[Tensor], layout: TokenLayout) -> Tensor:
        """Maps [rows, dim, *grid] of each segment, as `images` gave them, to tokens in the order of the layout."""
        return layout.patches_only().lay(torch.cat([one.flatten(2).transpose(1, 2) for one in maps], dim=1))


def embedder_class(name: str) -> type[Embedder]:
    """The embedder of that name.

    Raises:
        InputError: there is none; names the nearest.
    """
    return registry.find(Embedder, "sightline.models.embedders", "embedder", name)
