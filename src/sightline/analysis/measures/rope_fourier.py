"""Which places a head's rotary frequencies can tell apart (RoPE-ViT section 3.3, figure 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from torch import Tensor

from sightline.analysis.measures.base import MeasuredQuantity
from sightline.analysis.of_weights import WeightMeasure, refuse_larger
from sightline.analysis.views import CENTRE, Place, cell_of, check_place
from sightline.errors import InputError
from sightline.models import Model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

_WORDS = "prefix tokens, which are not turned, have no part in it, nor has a mask"


class RopeFourier(WeightMeasure):
    """A picture on the grid, made again of the frequencies that a head's rotation has, and no others.

    The angle of pair t is phase + x f_x + y f_y, in cells. Of the picture's two-dimensional FFT the coefficients stay
    that are nearest to the frequencies (f_x, f_y) and (-f_x, -f_y) of the head, and it is turned back: k_x =
    round(f_x cols / 2 pi) modulo cols, and so for y. The mean stays where a frequency is nearest to 0 on both axes. As
    in the figure the picture is one lit patch, unless another is given: what is left of it is how sharply attention can
    point at that place.
    """

    name: ClassVar[str] = "rope_fourier"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "frequencies": MeasuredQuantity(
            ("layer", "head", "pair", "axis"),
            "radians a cell",
            f"of each pair of channels, (f_x, f_y) as on this grid; 0 along an axis of one patch; {_WORDS}",
        ),
        "picture": MeasuredQuantity(("row", "col"), "", "what is made again: one lit patch, unless another was given"),
        "reconstruction": MeasuredQuantity(
            ("layer", "head", "row", "col"), "", f"the picture of each head's frequencies alone; {_WORDS}", "maps"
        ),
        "error": MeasuredQuantity(
            ("layer", "head"),
            "fraction",
            f"sum of the squared differences, over that of the picture's squares: what is lost of it; {_WORDS}",
            "layers",
        ),
        "kept": MeasuredQuantity(
            ("layer", "head"), "fraction", f"of the coefficients of the grid, that are kept; {_WORDS}"
        ),
    }

    def __init__(self, model: Model, query: Place = CENTRE, picture: np.ndarray | None = None) -> None:
        """Args: query: which patch is lit, (y, x) from 0 to 1 of the image; picture: numbers in place of it, [rows,
        cols]; else InputError."""
        super().__init__(model)
        if picture is not None and not (isinstance(picture, np.ndarray) and picture.dtype.kind in "buif"):
            raise InputError("rope_fourier: picture: expected an array of numbers, [rows, cols] of the grid")
        self.query, self.picture = check_place("rope_fourier: query", query), picture

    @classmethod
    def check(cls, model: Model) -> None:
        grid = model.config.train_grid
        if all(_angles(model, layer, grid) is None for layer in range(model.config.depth)):
            raise InputError(
                f"{cls.name}: encoding {model.config.encoding} turns no queries and keys "
                "(expected one that does, as rope_axial or rope_mixed)"
            )

    def refuse_grid(self, grid: Grid) -> None:
        if self.picture is not None and self.picture.shape != tuple(grid):
            raise InputError(f"picture of {list(self.picture.shape)}: expected [{grid.rows}, {grid.cols}], as the grid")
        refuse_larger(self.name, self.model, grid)

    def of_grid(self, grid: Grid) -> dict[str, np.ndarray]:
        if self.picture is None:
            picture = np.zeros(tuple(grid))
            picture.flat[cell_of(grid, self.query)] = 1
        else:
            picture = self.picture.astype(np.float64)
        frequencies = np.stack([_frequencies(self.model, layer, grid) for layer in range(self.model.config.depth)])
        kept = np.stack([fourier_coefficients(of_layer, grid) for of_layer in frequencies])
        spectrum, power = np.fft.fft2(picture), np.square(picture).sum()
        made = np.stack([np.fft.ifft2(spectrum * of_layer).real.astype(np.float32) for of_layer in kept])
        lost = np.square(made.astype(np.float64) - picture).sum((2, 3))
        return {
            "frequencies": frequencies.astype(np.float32),
            "picture": picture.astype(np.float32),
            "reconstruction": made,
            "error": np.divide(lost, power, out=np.zeros_like(lost), where=power > 0),
            "kept": kept.mean((2, 3)),
        }


def fourier_coefficients(frequencies: np.ndarray, grid: Grid) -> np.ndarray:
    """Which coefficients of a grid's FFT are nearest to frequencies and their mirrors.

    Args:
        frequencies: [heads, pairs, 2], (f_x, f_y) in radians a cell; what lies beyond a half turn a cell is taken as
            the frequency that it cannot be told from.

    Returns:
        bool [heads, rows, cols], in the order of `numpy.fft.fft2`.
    """
    along_x, along_y = (
        np.rint(frequencies[..., axis] * side / (2 * math.pi)).astype(np.int64)
        for axis, side in enumerate((grid.cols, grid.rows))
    )
    kept = np.zeros((len(frequencies), *grid), dtype=bool)
    heads = np.arange(len(frequencies)).reshape(-1, 1)
    for sign in (1, -1):
        kept[heads, sign * along_y % grid.rows, sign * along_x % grid.cols] = True
    return kept


def _angles(model: Model, layer: int, grid: Grid) -> Tensor | None:
    """By which a layer turns the patches of a grid: [1 or heads, cells, pairs], or None."""
    rotation = model.encoding.hooks.rotation(
        layer, TokenLayout.uniform(grid, 1, num_prefix_tokens=0, device=model.anchor.device)
    )
    return None if rotation is None else rotation.angles[0].detach()


def _frequencies(model: Model, layer: int, grid: Grid) -> np.ndarray:
    """How much the angles of a layer grow by cell: float64 [heads, pairs, 2], (f_x, f_y)."""
    angles = _angles(model, layer, grid)
    if angles is None:
        raise InputError(f"rope_fourier: layer {layer} turns no queries and keys")
    by_cell = angles.double().cpu().numpy().reshape(len(angles), *grid, -1)
    first = by_cell[:, 0, 0]
    # Over the whole side, since angles are float32.
    along_x = (by_cell[:, 0, -1] - first) / max(1, grid.cols - 1)
    along_y = (by_cell[:, -1, 0] - first) / max(1, grid.rows - 1)
    y, x = (np.arange(side).reshape(shape) for side, shape in zip(grid, ((-1, 1, 1), (-1, 1)), strict=True))
    evenly = first[:, None, None] + y * along_y[:, None, None] + x * along_x[:, None, None]
    if np.abs(evenly - by_cell).max() > 1e-4 * (1 + np.abs(by_cell).max()):
        raise InputError(
            f"rope_fourier: the angles of encoding {model.config.encoding} do not grow evenly from cell to cell, "
            "so that they have no one frequency"
        )
    frequencies = np.stack((along_x, along_y), axis=-1)
    return np.broadcast_to(frequencies, (model.config.heads, *frequencies.shape[1:]))
