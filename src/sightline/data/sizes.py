"""What size an image is shown at, in training and evaluation, how many of its tokens are dropped in training, and which
frames of a clip are shown: the number of frames is to frames what the resolution is to pixels."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from sightline.data.rng import generator
from sightline.errors import InputError
from sightline.io.config import Count, Number, Positive, Share, build_config, config_dataclass
from sightline.tokens.grid import Grid

Measure = Literal["side", "area"]
Aspect = Literal["native", "square"]
Distribution = Literal["uniform", "normal", "low", "high"]
Drop = Literal["constant", "beta", "length", "schedule"]
NATIVE_TOKENS = 1024
"""The most patches of an image that is shown at its own size, unless another number is asked for."""
MOST_FRAMES = 16_384
"""The longest clip that is read, and that is shown."""
Frames = Annotated[int, Field(ge=1, le=MOST_FRAMES)]
# Means of the normal distributions (NaViT section 3.2, figure 7).
_BIASES = {"normal": 0.0, "low": -0.5, "high": 0.5}


@config_dataclass(kw_only=False)
class ResolutionSampling:
    """Sides from `low` to `high` pixels (NaViT section 3.2).

    Attributes:
        low, high: of the side R; an image then has about R x R pixels, its aspect kept.
        measure: what the distribution is of: the `side` R, or the `area` R x R.
        distribution: `uniform`, or a normal one cut to the range: `normal`, biased `low` or `high`.
    """

    low: Count = 64
    high: Count = 384
    measure: Measure = "side"
    distribution: Distribution = "uniform"

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise InputError(f"low {self.low}: expected at most high, {self.high}", field="low", value=self.low)

    def draw(self, rng: np.random.Generator) -> float:
        """A side in pixels, from one number of `rng`."""
        share = rng.random()
        if self.distribution != "uniform":
            share = (_cut_normal(share, 1, _BIASES[self.distribution]) + 1) / 2
        if self.measure == "side":
            return self.low + share * (self.high - self.low)
        return math.sqrt(self.low**2 + share * (self.high**2 - self.low**2))


def _cut_normal(number: float, limit: float, mean: float = 0.0) -> float:
    """A number of [0, 1) as one of a normal distribution of deviation 1, cut to [-limit, limit], by its quantiles."""
    normal = NormalDist(mean)
    below, above = normal.cdf(-limit), normal.cdf(limit)
    return min(max(normal.inv_cdf(below + number * (above - below)), -limit), limit)


def native_grid(image_size: tuple[float, float], patch_size: int, max_tokens: int | None = None) -> Grid:
    """The grid of patches that fits an image of (height, width) pixels best: each side is rounded to the nearest
    multiple of the patch, at least one. Where that gives more than `max_tokens` patches, the grid within the limit
    whose aspect is nearest to the image's, and of equal ones the largest. Raises InputError where a number is below 1.
    """
    if min(*image_size, patch_size, 1 if max_tokens is None else max_tokens) < 1:
        size = f"{image_size[0]}x{image_size[1]}"
        raise InputError(f"image {size}, patch {patch_size}, max_tokens {max_tokens}: all must be at least 1")
    tall, wide = image_size[0] / patch_size, image_size[1] / patch_size
    rows, cols = max(math.floor(tall + 0.5), 1), max(math.floor(wide + 0.5), 1)
    if max_tokens is None or rows * cols <= max_tokens:
        return Grid(rows, cols)
    aspect = tall / wide
    ideal = math.sqrt(max_tokens * aspect)
    candidates = []
    for near in (math.floor, math.ceil):
        rows, cols = (min(max(near(side), 1), max_tokens) for side in (ideal, ideal / aspect))
        candidates.append(Grid(rows, min(max(math.floor(rows / aspect + 0.5), 1), max_tokens // rows)))
        candidates.append(Grid(min(max(math.floor(cols * aspect + 0.5), 1), max_tokens // cols), cols))
    return min(candidates, key=lambda grid: (abs(math.log(grid.rows / grid.cols / aspect)), -grid.cells, grid))


def grid_at(image_size: tuple[int, int], side: float, patch_size: int, max_tokens: int | None = None) -> Grid:
    """As `native_grid`, of an image of the aspect of `image_size` shown at about side x side pixels."""
    stretch = math.sqrt(image_size[0] / image_size[1])
    return native_grid((max(side * stretch, 1.0), max(side / stretch, 1.0)), patch_size, max_tokens)


def budget_grid(image_size: tuple[int, int], patch_size: int, tokens: int) -> Grid:
    """As `native_grid`, of an image resized, up or down, to at most `tokens` patches, as near as its aspect allows."""
    return grid_at(image_size, math.sqrt(max(tokens, 0)) * patch_size, patch_size, tokens)


class TokenDrop(ABC):
    """A rate at which an image's tokens are left out in training: a `config_dataclass`."""

    name: ClassVar[str]

    @abstractmethod
    def rate(self, rng: np.random.Generator, tokens: int, seen: int) -> float:
        """A rate from 0 to 1, of an image of so many tokens with a `rng` of its own, the run's `seen`-th."""

    def keep(self, rng: np.random.Generator, tokens: int, seen: int = 0) -> np.ndarray:
        """The tokens that stay: rising int64 indices, at least one of them."""
        count = max(round(tokens * (1 - self.rate(rng, tokens, seen))), 1)
        return np.sort(rng.permutation(tokens)[:count])


@config_dataclass(kw_only=False)
class ConstantDrop(TokenDrop):
    """The same rate for every image; 1 leaves one token."""

    name: ClassVar[str] = "constant"
    drop: Share = 0.5

    def rate(self, rng: np.random.Generator, tokens: int, seen: int) -> float:
        return self.drop


@config_dataclass(kw_only=False)
class BetaDrop(TokenDrop):
    """most x u, u of a Beta distribution of mean mean / most and variance 0.3 u (1 - u) (NaViT appendix B.6)."""

    name: ClassVar[str] = "beta"
    mean: Positive = 0.5
    most: Share = 0.8

    def __post_init__(self) -> None:
        if self.mean >= self.most:
            raise InputError(f"mean {self.mean}: expected less than most, {self.most}", field="mean", value=self.mean)

    def rate(self, rng: np.random.Generator, tokens: int, seen: int) -> float:
        mean = self.mean / self.most
        # The variance of Beta(a, b) is mean (1 - mean) / (a + b + 1).
        total = 1 / 0.3 - 1
        return self.most * float(rng.beta(mean * total, (1 - mean) * total))


@config_dataclass(kw_only=False)
class LengthDrop(TokenDrop):
    """A normal rate of deviation 0.02, cut at two of them, whose mean rises with the image's length from `least` at
    `shortest` tokens to `most` at `longest` (NaViT appendix B.6)."""

    name: ClassVar[str] = "length"
    least: Share = 0.2
    most: Share = 0.8
    shortest: Count = 16
    longest: Count = 576

    def __post_init__(self) -> None:
        if self.shortest >= self.longest:
            problem = f"shortest {self.shortest}: expected less than longest, {self.longest}"
            raise InputError(problem, field="shortest", value=self.shortest)

    def rate(self, rng: np.random.Generator, tokens: int, seen: int) -> float:
        share = min(max((tokens - self.shortest) / (self.longest - self.shortest), 0.0), 1.0)
        mean = self.least + share * (self.most - self.least)
        return min(max(mean + 0.02 * _cut_normal(rng.random(), 2), 0.0), 1.0)


@config_dataclass(kw_only=False)
class ScheduledDrop(TokenDrop):
    """least + (most - least) sigmoid((seen - middle) / width): rising for a positive width, falling for a negative one
    (NaViT appendix B.7, equation 1)."""

    name: ClassVar[str] = "schedule"
    least: Share = 0.2
    most: Share = 0.8
    middle: Number = 24_000.0
    width: Positive | Annotated[float, Field(lt=0)] = -8_000.0

    def rate(self, rng: np.random.Generator, tokens: int, seen: int) -> float:
        # By tanh, which does not overflow.
        return self.least + (self.most - self.least) * (1 + math.tanh((seen - self.middle) / self.width / 2)) / 2


DROPS: dict[str, type[TokenDrop]] = {one.name: one for one in (ConstantDrop, BetaDrop, LengthDrop, ScheduledDrop)}


def token_drop(name: Drop, options: Mapping[str, Any]) -> TokenDrop:
    """The drop of that name; raises InputError where a field is not known, or a value is refused."""
    return build_config(DROPS[name], options, f"token drop {name}")


@dataclass(frozen=True)
class SizeSampler:
    """At what sizes the images of a run are shown, and which of their patches: a function of seed, epoch and index.

    Attributes:
        patch_size: side of a patch in pixels.
        tubelet: its frames, of a model of clips.
        resolutions: what sides are drawn; None shows each image at its own size.
        drop: how many tokens are left out; None keeps all.
        max_tokens: patches of an image, before any is dropped; larger ones are shown smaller.
        aspect: `native` keeps each image's own, `square` cuts its longer side.
    """

    patch_size: int
    resolutions: ResolutionSampling | None = None
    drop: TokenDrop | None = None
    max_tokens: int | None = None
    aspect: Aspect = "native"
    tubelet: int | None = None

    def sample(
        self, image_size: tuple[int, int], *, seed: int, index: int, epoch: int = 0, seen: int = 0, frames: int = 1
    ) -> tuple[Grid, np.ndarray | None]:
        """The patches of one image of stored (height, width) pixels and so many frames, the run's `seen`-th, and int64
        the row-major numbers of those that stay, rising; None for all."""
        depth = 1 if self.tubelet is None else -(-frames // self.tubelet)
        # Of each frame, so that all together are not more; one at least.
        max_tokens = self.max_tokens and max(self.max_tokens // depth, 1)
        rng = generator("shown/1", seed, index, epoch=epoch)
        if self.aspect == "square":
            image_size = (min(image_size), min(image_size))
        if self.resolutions is None:
            grid = native_grid(image_size, self.patch_size, max_tokens)
        else:
            grid = grid_at(image_size, self.resolutions.draw(rng), self.patch_size, max_tokens)
        if self.tubelet is not None:
            grid = Grid(depth, *grid)
        return grid, None if self.drop is None else self.drop.keep(rng, grid.cells, seen)


@config_dataclass(kw_only=False)
class FrameSampling:
    """Of a clip, so many frames at equal distances, in their order.

    Without a stride they spread over the whole clip: it is cut into `count` equal spans, and of each the same place is
    shown, the middle where a clip is measured, a drawn place in training. With one they are a part of the clip: its
    middle, or one that begins at a drawn place in training; past its end its last frame is repeated.

    Attributes:
        count: frames that are shown.
        stride: from one to the next, in frames of the clip.
        exact: a clip of fewer frames shows some twice; else, for batches that are packed, those that it has.
    """

    count: Frames
    stride: Frames | None = None
    exact: bool = True

    def frame_count(self, stored: int) -> int:
        """How many frames are shown of a clip that has `stored`."""
        return self.count if self.exact else min(self.count, math.ceil(stored / (self.stride or 1)))

    def positions(self, stored: int, share: float = 0.5) -> np.ndarray:
        """Which of `stored`: int64 [frames], rising; `share`, 0 up to 1, is where in its span each lies, or where the
        part begins."""
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


@dataclass(frozen=True, slots=True, order=True)
class View:
    """How the images of a split are shown where each keeps its own aspect.

    Attributes:
        kind: `native` shows each at its own size, scaled down where it has more than `patches` patches; `tokens`
            scales it, up or down, to as near to `patches` patches as its aspect allows (NaViT appendix D).
    """

    kind: Literal["native", "tokens"]
    patches: int = NATIVE_TOKENS

    def __post_init__(self) -> None:
        if self.patches < 1:
            raise InputError(f"view {self.kind}: {self.patches} patches (expected: at least 1)")

    @property
    def name(self) -> str:
        """As it is written on the command line and in rows: "native", "max:4096", "tokens:256"."""
        if self.kind == "tokens":
            return f"tokens:{self.patches}"
        return "native" if self.patches == NATIVE_TOKENS else f"max:{self.patches}"

    @classmethod
    def parse(cls, name: str) -> View | None:
        """The inverse of `name`; None where it is none of these."""
        if name == "native":
            return cls("native")
        # Python reads no number of thousands of digits, and no image has so many patches.
        match = re.fullmatch(r"(max|tokens):0*([1-9][0-9]{0,17})", name)
        return cls("native" if match[1] == "max" else "tokens", int(match[2])) if match else None

    def grid(self, image_size: tuple[int, int], patch_size: int) -> Grid:
        """The patches of an image of (height, width) pixels; for `tokens`, of which the aspect counts."""
        rule = budget_grid if self.kind == "tokens" else native_grid
        return rule(image_size, patch_size, self.patches)
