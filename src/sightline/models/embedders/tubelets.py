"""Flat tubelets of clips to tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sightline.io.config import build_config, config_dataclass
from sightline.models.config import PatchSide, ViTConfig
from sightline.models.embedders.patches import PatchEmbed
from sightline.tokens.tubelets import TubeletPatchifier


@config_dataclass
class TubeletsConfig:
    """Options of `Tubelets`.

    Attributes:
        frames: of a tubelet; 1 takes each frame's patches alone (uniform frame sampling).
        inflation: how weights of an image model become a tubelet's (ViViT section 3.4): `central` gives them to the
            frame of index frames // 2 and 0 to the others; `average` gives each frame its share (filter inflation);
            `rank_pooling` weights these shares (scenic's `average_arp`; Bilen et al. 2018, equation 3).
    """

    frames: PatchSide = 2
    inflation: Literal["central", "average", "rank_pooling"] = "central"


class Tubelets(PatchEmbed):
    """A linear layer over flat tubelets (ViViT section 3.2.2), the 3-D convolution of other projects with its weight
    reshaped; over the patches of each frame where a tubelet has one (section 3.2.1).

    `proj.weight` is [dim, channels * frames * patch_size**2] over (channel, frame, y, x).
    """

    name = "tubelets"
    Options: ClassVar[Any] = TubeletsConfig

    @classmethod
    def patchifier_of(cls, config: ViTConfig) -> TubeletPatchifier:
        """Clips, and images, to rows."""
        return TubeletPatchifier(config.patch_size, config.channels, config.fit, options_of(config).frames)

    @classmethod
    def options_of(cls, config: ViTConfig) -> dict[str, Any]:
        return {"frames": options_of(config).frames}

    def inflated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As `TubeletsConfig.inflation` says; a norm of the patch is that of each frame. Weights of other values than
        a patch's pixels stay as they are, and do not fit."""
        patch, frames = self.patchifier.patch_size**2, self.options.frames
        shares = torch.zeros(frames)
        if self.options.inflation == "central":
            shares[frames // 2] = 1.0
        elif self.options.inflation == "average":
            shares += 1 / frames
        else:
            # 2 (T - t + 1) - (T + 1) (H_T - H_(t - 1)) of frame t of T, H the sums of 1 / n.
            left = torch.arange(frames, 0, -1)
            harmonic = (1 / left).cumsum(0).flip(0)
            shares = (2 * left - (frames + 1) * harmonic) / frames

        def over_frames(one: Tensor, share: Tensor) -> Tensor:
            values = one.unflatten(-1, (self.patchifier.channels, 1, patch))
            return (values * share.to(one).view(-1, 1)).flatten(-3)

        turned = {"proj.weight": shares, "norm_input.weight": torch.ones(frames), "norm_input.bias": torch.ones(frames)}
        values = self.patchifier.channels * patch
        return {
            name: over_frames(one, turned[name]) if name in turned and one.shape[-1] == values else one
            for name, one in state.items()
        }


def options_of(config: ViTConfig) -> TubeletsConfig:
    """The embedder's options in a model's configuration.

    Raises:
        InputError: one is not known (names the nearest), or out of range.
    """
    return build_config(TubeletsConfig, config.embedder_options, "embedder_options")
