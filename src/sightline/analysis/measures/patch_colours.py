"""Features of patches as colours: their first three principal components (as DINOv2's figure 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.data.batch import Batch
from sightline.errors import InputError, require_known
from sightline.models import Model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

Fit = Literal["image", "size"]
# Of the largest component's variance: what is below is rounding, and would be stretched to a colour.
_ROUNDING = 1e-12


def colours_of(tokens: Tensor, grid: Grid) -> np.ndarray:
    """One image's patches as colours: the first three principal components of their features.

    A component's sign is such that its largest loading, the first of equals, is positive; its scores are stretched so
    that the least is 0 and the greatest 1. A component without variance (of one patch, of equal ones) is 0.5.

    Args:
        tokens: [rows, cols, dim], or [rows * cols, dim] in row-major order; without prefix tokens.
        grid: (rows, cols).

    Returns:
        float64 [rows, cols, 3] in [0, 1]: red is the first component.

    Raises:
        InputError: the tokens are not so many.
    """
    rows, cols = grid.planar("colours of patches")
    patches = tokens.reshape(-1, tokens.shape[-1])
    if len(patches) != rows * cols:
        raise InputError(f"tokens {list(tokens.shape)}: expected those of a grid of {rows}x{cols}")
    return principal_colours(patches)[0].reshape(rows, cols, 3)


def principal_colours(patches: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Colours of any patches, fitted to all of them, as `colours_of`.

    Args:
        patches: [patches, dim].

    Returns:
        The colours, float64 [patches, 3] in [0, 1], and the share of the variance that each component explains,
        float64 [3].
    """
    count, dim = patches.shape
    x = patches.detach().double()
    x = x - x.mean(0)
    # The smaller of the two products has all that is wanted.
    if dim <= count:
        values, vectors = torch.linalg.eigh(x.T @ x)
        values, loadings = values.flip(0)[:3], vectors.flip(1)[:, :3]
    else:
        values, vectors = torch.linalg.eigh(x @ x.T)
        values, loadings = values.flip(0)[:3], x.T @ vectors.flip(1)[:, :3]
    total = float(x.square().sum())
    there = values > max(float(values[0]), 0.0) * _ROUNDING
    loadings = loadings[:, there]
    loadings = loadings / loadings.norm(dim=0)
    largest = loadings.gather(0, loadings.abs().argmax(0, keepdim=True))
    scores = x @ (loadings * largest.sign())
    colours, explained = np.full((count, 3), 0.5), np.zeros(3)
    if scores.shape[1]:
        low, high = scores.amin(0), scores.amax(0)
        colours[:, : scores.shape[1]] = ((scores - low) / (high - low)).cpu().numpy()
        explained[: scores.shape[1]] = (values[there] / total).cpu().numpy()
    return colours, explained


class PatchColours(Measure):
    """Features of patches as colours in [0, 1]: the first three principal components, stretched; see `colours_of`.

    Prefix tokens are neither fitted nor shown; patches that were dropped are NaN.

    Attributes:
        fit: to the patches of each `image` apart, or to those of all images of a `size` together, so that a colour is
            the same in all of them. For that the features of all images are kept: images x patches x dim in float32.
        layer: -1 for what enters the first block, 0 to depth - 1 for a block's output, None for the last after the
            final norm.
    """

    name: ClassVar[str] = "patch_colours"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "colours": MeasuredQuantity(
            ("image", "row", "col", "channel"),
            "",
            "the first three principal components of the features of patches as red, green and blue; prefix tokens are "
            "not among them, dropped patches are left blank",
            "maps",
        ),
        "explained": MeasuredQuantity(
            ("image", "component"),
            "fraction",
            "of the variance over patches that each component explains; of all images together where fit is size",
        ),
    }

    def __init__(self, model: Model, *, layer: int | None = None, fit: Fit = "image") -> None:
        super().__init__(model)
        require_known("fit", fit, ("image", "size"))
        depth = model.config.depth
        if layer is not None and not (type(layer) is int and -1 <= layer < depth):
            raise InputError(f"layer {layer!r}: expected -1 to {depth - 1}, or None for after the final norm")
        self.layer, self.fit = layer, fit
        self.grid: Grid | None = None
        self.layout: TokenLayout | None = None
        self.colours: list[np.ndarray] = []
        self.explained: list[np.ndarray] = []
        # Features and the places of patches, of images that are fitted together.
        self.kept: list[tuple[Tensor, np.ndarray]] = []

    def begin(self, batch: Batch) -> None:
        for segment in batch.layout.segments:
            self.grid = segment.grid.planar("patch_colours") if self.grid is None else self.grid
            if segment.grid != self.grid:
                both = " and ".join("x".join(map(str, one)) for one in (self.grid, segment.grid))
                raise InputError(f"patch_colours: images of grids {both} (expected one; `colours_of` is of one image)")

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        if layer == self.layer:
            self._seen(tokens, layout)

    def end(self, tokens: Tensor, layout: TokenLayout) -> None:
        if self.layer is None:
            self._seen(tokens, layout)

    def _seen(self, tokens: Tensor, layout: TokenLayout) -> None:
        images = layout.split(tokens)
        for row in range(layout.rows):
            for image, segment in zip(images, layout.segments, strict=True):
                patches = image[row, layout.num_prefix_tokens :]
                places = segment.indices[row if len(segment.coords) > 1 else 0].cpu().numpy()
                if self.fit == "size":
                    self.kept.append((patches.float().clone(), places))
                else:
                    self._shown(*principal_colours(patches), places)

    def _shown(self, colours: np.ndarray, explained: np.ndarray, places: np.ndarray) -> None:
        assert self.grid is not None
        shown = np.full((self.grid.cells, 3), np.nan)
        shown[places] = colours
        self.colours.append(shown.reshape(*self.grid, 3))
        self.explained.append(explained)

    def arrays(self) -> dict[str, np.ndarray]:
        if self.kept:
            colours, explained = principal_colours(torch.cat([patches for patches, _ in self.kept]))
            first = 0
            for patches, places in self.kept:
                self._shown(colours[first : first + len(patches)], explained, places)
                first += len(patches)
            self.kept = []
        grid = self.grid or (0, 0)
        return {
            "colours": np.array(self.colours).reshape(-1, *grid, 3) if self.colours else np.zeros((0, *grid, 3)),
            "explained": np.array(self.explained).reshape(-1, 3),
        }
