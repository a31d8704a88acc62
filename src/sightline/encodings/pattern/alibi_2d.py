"""2D-ALiBi: a penalty that grows with the distance, the same in every direction."""

from __future__ import annotations

from typing import ClassVar

from sightline.attention.pattern import DirectedBias, FieldOfView, Pattern
from sightline.encodings.base import PatternEncoding, TrunkShape
from sightline.encodings.knob import KnobSpec
from sightline.io.config import NonNegative, config_dataclass


@config_dataclass
class Alibi2dConfig:
    """Configuration of `Alibi2d`.

    Attributes:
        global_slope: multiplies the slopes of all heads; the knob.
        time_step: of clips, how many patches far a step of one tubelet in time is.
    """

    global_slope: NonNegative = 1.0
    time_step: NonNegative = 1.0


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """2^(-8k/n) for k = 1..n where n is a power of two; else those of the next lower power of two, followed by every
    second slope of the next higher one (ALiBi section 3)."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * k / power) for k in range(1, power + 1)]
    between = [2.0 ** (-8 * k / (2 * power)) for k in range(1, 2 * power + 1, 2)]
    return tuple(slopes + between[: heads - power])


class Alibi2d(PatternEncoding):
    """bias = -s_g slope_h * Euclidean distance (ALiBi in two dimensions, as in CROMA and LookHere's baselines).

    Prefix tokens see and are seen by all at no penalty. The encoding cannot tell left from right or rows from
    columns, of clips nor past from future; there the distance is that in space and time.
    """

    names: ClassVar = {"alibi_2d": {}}
    Config: ClassVar = Alibi2dConfig
    source: ClassVar = "ALiBi (2022), section 3; CROMA (2023); LookHere (2024), baseline"
    extrapolation: ClassVar = "the same distances in cells; nothing is resized"
    tunable: ClassVar = KnobSpec("global_slope", 0.0, 1e6, (0.5, 0.75, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 2.0))
    global_slope: float
    symmetric: ClassVar = True
    axes: ClassVar = (2, 3)

    def __init__(self, config: Alibi2dConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        self.steps = self.axis_steps(config.time_step)

    def layer_pattern(self, layer: int) -> Pattern:
        heads = self.shape.heads
        term = DirectedBias(
            (FieldOfView(),) * heads, alibi_slopes(heads), (False,) * heads, scale=self.global_slope, steps=self.steps
        )
        return Pattern((term,))
