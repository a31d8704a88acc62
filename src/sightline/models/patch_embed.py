"""Flat patches to tokens."""

from __future__ import annotations

from torch import Tensor, nn

from sightline.grid import Grid


class PatchEmbed(nn.Module):
    """A linear layer over flat patches (ViT section 3.1), the convolution of other projects with its weight reshaped.

    Args:
        norms: of the flat patch and of its token (Dual PatchNorm; vit-pytorch's NaViT), or none.

    Attributes:
        patch_size: (height, width) of a patch, as timm's.
        grid_size: (rows, cols) of the training grid, as timm's; other grids need nothing changed.
        proj: the linear layer, weight [dim, channels * patch_size**2] over (channel, y, x).
    """

    def __init__(
        self,
        patch_size: int,
        channels: int,
        dim: int,
        train_grid: Grid,
        *,
        bias: bool = True,
        norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.patch_size = (patch_size, patch_size)
        self.grid_size = tuple(train_grid)
        self.num_patches = train_grid.cells
        self.norm_input, norm = norms or (nn.Identity(), nn.Identity())
        self.proj = nn.Linear(channels * patch_size**2, dim, bias=bias)
        self.norm = norm

    def forward(self, patches: Tensor) -> Tensor:
        """[rows, patches, channels * patch_size**2] -> [rows, patches, dim]."""
        return self.norm(self.proj(self.norm_input(patches)))
