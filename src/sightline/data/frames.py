"""Which frames of a clip are shown: the number of frames is to frames what the resolution is to pixels."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from sightline.data.rng import generator
from sightline.io.config import config_dataclass

MOST_FRAMES = 16_384
"""The longest clip that is read, and that is shown."""
Frames = Annotated[int, Field(ge=1, le=MOST_FRAMES)]


@config_dataclass(kw_only=False)
class FrameSampling:
    """Of a clip, so many frames at equal distances, in their order.

    Without a stride they spread over the whole clip: it is cut into `count` equal spans, and of each the same place is
    shown, the middle where a clip is measured, a place that is drawn for the clip in training. With one they are a part
    of the clip: its middle, or one that begins at a drawn place in training; past its end its last frame is repeated.

    Attributes:
        count: frames that are shown.
        stride: from one frame to the next, in frames of the clip.
        exact: a clip of fewer frames shows some twice, so that all clips of a batch are alike. Else it shows those that
            it has: an image one. For batches that are packed.
    """

    count: Frames
    stride: Frames | None = None
    exact: bool = True

    def frame_count(self, stored: int) -> int:
        """How many frames are shown of a clip that has `stored`."""
        return self.count if self.exact else min(self.count, math.ceil(stored / (self.stride or 1)))

    def positions(self, stored: int, share: float = 0.5) -> np.ndarray:
        """Which: int64 [frames], rising, from 0 to `stored` - 1.

        Args:
            stored: frames of the clip.
            share: 0 up to 1, where in its span each lies, or where the part begins; the middle unless drawn.
        """
        numbers = np.arange(self.frame_count(stored))
        if self.stride is None:
            # In whole numbers: a float may round the last place up to the clip's end.
            fine = 1 << 20
            return ((numbers * fine + int(share * fine)) * stored) // (len(numbers) * fine)
        room = max(stored - 1 - (len(numbers) - 1) * self.stride, 0)
        return np.minimum(int(share * (room + 1)) + numbers * self.stride, stored - 1)

    def draw(self, stored: int, *, seed: int, epoch: int, index: int) -> np.ndarray:
        """As `positions`, of a training clip: a function of (seed, epoch, index) alone."""
        return self.positions(stored, float(generator("frames/1", seed, index, epoch=epoch).random()))
