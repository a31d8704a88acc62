"""What an embedder is: images to flat rows of values, which workers do, and these to tokens, which the model does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from sightline import registry
from sightline.errors import InputError
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import Patchifier, RectPatchifier

if TYPE_CHECKING:
    from sightline.models.config import ViTConfig


class Embedder(nn.Module):
    """Flat rows to tokens; one in a file of `models/embedders/`, or of a plug-in.

    Its options are `config.embedder_options`. The encoding, the prefix tokens and the layout are the model's.

    Attributes:
        name: as `create_model(embedder=)` and `config.json` say it.
        patchifier: the half without weights, by which this model's images become rows.
        supports_token_dropping: it embeds the patches that are there where others were dropped.
        patch_size: (height, width) in pixels of the patches that it cuts, as timm's patch embedding says it.
    """

    name: ClassVar[str]
    supports_token_dropping: ClassVar[bool] = True

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.patchifier = self.patchifier_of(config)
        # As timm's patch embedding says it; other grids need nothing changed.
        self.patch_size: tuple[int, int] = (config.patch_size, config.patch_size)
        self.grid_size, self.num_patches = tuple(config.train_grid), config.train_grid.cells

    @classmethod
    def patchifier_of(cls, config: ViTConfig) -> Patchifier:
        """Images to rows: pure, pickled to workers, and known without a model."""
        return Patchifier(config.patch_size, config.channels, config.fit)

    @classmethod
    def kernel_of(cls, config: ViTConfig) -> tuple[int, int, int, int]:
        """The shape [dim, channels, height, width] of the convolution that `proj` is: over pixels, or a stem's map."""
        return config.dim, config.channels, config.patch_size, config.patch_size

    @classmethod
    def options_of(cls, config: ViTConfig) -> dict[str, Any]:
        """`embedder_options` with the defaults filled in, so that equal embedders have equal ones."""
        return dict(config.embedder_options)

    @classmethod
    def multiplications(cls, config: ViTConfig) -> int:
        """Of a patch, each with its addition."""
        return config.dim * cls.patchifier_of(config).patch_dim

    @classmethod
    def held(cls, config: ViTConfig, training: bool) -> tuple[int, int]:
        """Numbers that are held of a patch, and those whatever the images: at once in a forward without gradients, or
        for the backward pass; beside the rows, the tokens and the parameters."""
        return 0, 0

    def values_of(self, rows: Tensor) -> int:
        """How many values a row must have, of these rows."""
        return self.patchifier.patch_dim

    def check_other_patches(self, config: ViTConfig) -> None:
        """Refuse, by an InputError, where no patches of another size can be cut, whatever that size."""
        if not hasattr(getattr(self, "options", None), "rule"):
            said = f"embedder {self.name}: has patches of one size, {config.patch_size}"
            raise InputError(f"{said} (expected embedder patches or flexible)")

    def set_patch_size(self, size: Sequence[int], config: ViTConfig) -> None:
        """Cut patches of (height, width) pixels from now on; those that have weights for a pixel change them first.
        `config` is that of the model with these patches; where they are oblong, with those that it had.

        Raises:
            InputError: it cannot; nothing was changed. Or the patches are oblong and `fit` is not `exact`.
        """
        sides = (size[0], size[1])
        square = sides[0] == sides[1]
        oblong = None if square else RectPatchifier(0, config.channels, config.fit, sides)
        self.patchifier, self.patch_size = oblong or self.patchifier_of(config), sides

    def inflated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of this embedder, which cuts clips, from those of one of images, by name in this module."""
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
        pieces = zip(self.pieces(rows, layout), layout.segments, strict=True)
        return [self.patchifier.unpatchify(piece, segment.grid) for piece, segment in pieces]

    def pieces(self, rows: Tensor, layout: TokenLayout) -> list[Tensor]:
        """The rows of each segment, row-major; raises InputError where patches of an image were dropped."""
        if not all(segment.complete for segment in layout.segments):
            raise InputError(f"embedder {self.name}: needs whole images (expected no dropped patches)")
        bare = layout.patches_only()
        return bare.split(bare.to_row_major(rows))

    def tokens(self, maps: Sequence[Tensor], layout: TokenLayout) -> Tensor:
        """Maps [rows, dim, *grid] of each segment, as `images` gave them, to tokens in the order of the layout."""
        return layout.patches_only().to_layout_order(torch.cat([one.flatten(2).transpose(1, 2) for one in maps], dim=1))


def embedder_class(name: str) -> type[Embedder]:
    """The embedder of that name.

    Raises:
        InputError: there is none; names the nearest.
    """
    return registry.find(Embedder, "sightline.models.embedders", "embedder", name)
