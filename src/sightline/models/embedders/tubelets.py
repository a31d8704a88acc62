"""Flat tubelets of clips to tokens."""

from __future__ import annotations

from dataclasses import dataclass

from sightline.checks import configure, require_whole
from sightline.models.config import MOST, ViTConfig
from sightline.models.embedders.patches import PatchEmbed
from sightline.tubelets import TubeletCutter


@dataclass(frozen=True)
class TubeletsConfig:
    """Options of `Tubelets`.

    Attributes:
        frames: of a tubelet; 1 takes each frame's patches alone (uniform frame sampling).
    """

    frames: int = 2

    def __post_init__(self) -> None:
        require_whole("embedder tubelets frames", self.frames, 1, MOST["patch_size"])


class Tubelets(PatchEmbed):
    """A linear layer over flat tubelets (ViViT section 3.2.2), the 3-D convolution of other projects with its weight
    reshaped; over the patches of each frame where a tubelet has one (section 3.2.1).

    `proj.weight` is [dim, channels * frames * patch_size**2] over (channel, frame, y, x).
    """

    name = "tubelets"

    @classmethod
    def cutter_of(cls, config: ViTConfig) -> TubeletCutter:
        """Clips, and images, to rows."""
        return TubeletCutter(config.patch_size, config.channels, config.fit, options_of(config).frames)


def options_of(config: ViTConfig) -> TubeletsConfig:
    """The embedder's options in a model's configuration.

    Raises:
        InputError: one is not known (names the nearest), or out of range.
    """
    return configure(TubeletsConfig, config.embedder_options, "embedder tubelets")
