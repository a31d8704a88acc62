"""Fixed sines and cosines of the two coordinates, of clips of three."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.encodings.base import AddedConfig, AddedEncoding, TrunkShape
from sightline.encodings.interpolate import Interpolation, resize_table
from sightline.errors import InputError
from sightline.io.config import AboveOne, config_dataclass
from sightline.tokens.cache import ByteLRUCache
from sightline.tokens.grid import Grid
from sightline.tokens.segment import grid_coords

_TABLES = ByteLRUCache("sines and cosines", 4 << 20)
_ORDERS = {
    "big_vision": ("sin x", "cos x", "sin y", "cos y"),
    "mae": ("sin x", "cos x", "sin y", "cos y"),
    "timm": ("sin y", "sin x", "cos y", "cos x"),
    "timm_interleaved": ("sin y", "cos y", "sin x", "cos x"),
}


@config_dataclass
class Sincos2dConfig(AddedConfig):
    """Configuration of `Sincos2d`.

    Attributes:
        order: whose order of channels and frequencies: `big_vision` [sin x, cos x, sin y, cos y] with the last
            frequency exactly 1 / temperature; `mae` the same order with temperature^(-j / (dim / 4)); `timm`
            [sin y, sin x, cos y, cos x]; `timm_interleaved` [sin y, cos y, sin x, cos x].
        temperature: ratio of the lowest and highest frequency.
        new_grid: `extend` evaluates at the new coordinates; otherwise the training grid's table is resized with
            this interpolation (`bilinear` is LookHere's baseline).
    """

    order: Literal["big_vision", "mae", "timm", "timm_interleaved"] = "big_vision"
    temperature: AboveOne = 10000.0
    new_grid: Literal["extend", Interpolation] = "extend"


class Sincos2d(AddedEncoding):
    """sin and cos of omega_j x and omega_j y (MoCo v3 and MAE; RoPE-ViT equation 2), without parameters.

    Of clips [sin t, cos t] stands first, with dim // 6 frequencies an axis where there are dim / 4 else; the channels
    that are left over, at the end, are 0.
    """

    names: ClassVar = {"sincos_2d": {}}
    Config: ClassVar = Sincos2dConfig
    source: ClassVar = "MoCo v3 (2021); MAE (2022); RoPE-ViT (2024), equation 2"
    extrapolation: ClassVar = "evaluated at the new coordinates, or the table resized"
    resized_by: ClassVar = "new_grid"
    axes: ClassVar = (2, 3)

    def __init__(self, config: Sincos2dConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        clips = len(shape.train_grid) == 3
        if clips and shape.dim < 12:
            raise InputError(f"sincos_2d: dim {shape.dim} must be 12 or more for clips")
        if not clips and (shape.dim % 4 or (config.order == "big_vision" and shape.dim < 8)):
            raise InputError(f"sincos_2d: dim {shape.dim} must be a multiple of 4 (and 8 or more for big_vision)")

    def embedding_on(self, grid: Sequence[int], device: torch.device) -> Tensor:
        rule, grid = self.config.new_grid, Grid(*grid)
        known = grid if rule == "extend" else self.shape.train_grid
        key = self.config, self.shape.dim, known, device
        table = _TABLES.get_tensor(key, device, lambda: self._table(known, device))
        return table if rule == "extend" else resize_table(table, known, grid, rule)

    def _table(self, grid: Grid, device: torch.device) -> Tensor:
        where = torch.device("cpu") if device.type == "mps" else device
        share = self.shape.dim // (2 * len(grid))
        steps = share - 1 if self.config.order == "big_vision" else share
        exponents = torch.arange(share, device=where, dtype=torch.float64) / steps
        omega = self.config.temperature**-exponents
        *time, y, x = (grid_coords(grid, where).double().unsqueeze(-1) * omega).unbind(-2)
        waves = {"sin x": x.sin(), "cos x": x.cos(), "sin y": y.sin(), "cos y": y.cos()}
        ordered = [waves[name] for name in _ORDERS[self.config.order]]
        joined = torch.cat((*(wave for t in time for wave in (t.sin(), t.cos())), *ordered), dim=-1)
        return F.pad(joined, (0, self.shape.dim - joined.shape[-1])).float().to(device)
