"""Mixed rotary position encoding: each layer and head learns its own directions and frequencies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from sightline.attention.wide import at_least_float32
from sightline.encodings.base import RotaryEncoding, TrunkShape
from sightline.encodings.knob import KnobSpec
from sightline.io.config import AboveOne, config_dataclass
from sightline.tokens.grid import Grid


@config_dataclass
class RopeMixedConfig:
    """Configuration of `RopeMixed`.

    Attributes:
        theta: the base of the frequencies at the start of training, more than 1; the knob afterwards.
    """

    theta: AboveOne = 10.0


class RopeMixed(RotaryEncoding):
    """angle = x f_x + y f_y, with f_x and f_y learned for each layer and head (RoPE-ViT equation 14).

    `freqs` is [2, depth, heads, head_dim / 2], x then y. At the start each head has one random direction a and
    magnitudes theta^(-4j/d): f_x = [m cos a, m cos(a + pi/2)], f_y = [m sin a, m sin(a + pi/2)]. Turning the knob
    scales channel j of both halves by (theta / trained theta)^(-4j/d), as a start from the new theta would have.

    Of clips angle = t f_t + x f_x + y f_y, and `freqs` is [3, depth, heads, head_dim / 2], t, x and then y. At the
    start each head has three random directions at right angles to each other, and each third of the channel pairs turns
    along one of them with magnitudes theta^(-j/n) for its n pairs; the first third has those that are left over.
    """

    names: ClassVar = {"rope_mixed": {}}
    Config: ClassVar = RopeMixedConfig
    source: ClassVar = "RoPE-ViT (2024), equation 14"
    extrapolation: ClassVar = "angles at the new coordinates, counted from 0"
    tunable: ClassVar = KnobSpec("theta", 1.0 + 1e-6, 1e9, (5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0))
    theta: float
    reads_grid = False
    axes: ClassVar = (2, 3)

    def __init__(self, config: RopeMixedConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        self.pairs = self.axis_pairs()
        self.freqs = nn.Parameter((self._start_of_clips if len(self.pairs) == 3 else self._start)(config.theta))

    def _start(self, theta: float) -> Tensor:
        direction = torch.rand(self.shape.depth, self.shape.heads, 1) * 2 * math.pi
        magnitude = 1.0 / (theta ** self._exponents(direction.device))
        turned = torch.cat((direction.expand(-1, -1, magnitude.shape[0]), direction + math.pi / 2 + 0 * magnitude), -1)
        return torch.stack((turned.cos(), turned.sin())) * magnitude.repeat(2)

    def _start_of_clips(self, theta: float) -> Tensor:
        cpu = torch.device("cpu")
        # The columns of an orthogonal matrix that is made of random ones are directions of equal chance.
        directions, _ = torch.linalg.qr(torch.randn(self.shape.depth, self.shape.heads, 3, 3, device=cpu))
        along = directions.repeat_interleave(torch.tensor(self.pairs, device=cpu), dim=-1)
        turned = (along * theta ** -self._exponents(cpu)).permute(2, 0, 1, 3).contiguous()
        return turned.to(torch.get_default_device())

    def _exponents(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """Of the magnitudes: of images those of one half of the channel pairs, of clips of all."""
        counts = self.pairs if len(self.pairs) == 3 else self.pairs[:1]
        return torch.cat([torch.arange(count, device=device).to(dtype) / count for count in counts])

    def angles(self, coords: Tensor, grid: Grid, layer: int) -> Tensor:
        # Parameters may be held in bfloat16 by a sharded trainer; angles are float32 at least.
        along = at_least_float32(self.freqs[:, layer]).unsqueeze(2)
        if self.theta != self.config.theta:
            scale = (self.theta / self.config.theta) ** -self._exponents(coords.device, along.dtype)
            along = along * (scale if len(along) == 3 else scale.repeat(2))
        y, x = (place := coords.to(along).unsqueeze(1).unsqueeze(-1)).unbind(-2)[-2:]
        turned = x * along[-2] + y * along[-1]
        return turned if len(along) == 2 else place[..., 0, :] * along[0] + turned

    def inflated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What was learned of space; time turns nothing yet."""
        return {"freqs": torch.cat((torch.zeros_like(state["freqs"][:1]), state["freqs"]))}
