"""What a run's configuration says of its data: packing, mixing, patch sizes, what is left out. No torch."""

from __future__ import annotations

import functools
from dataclasses import field
from typing import Annotated, Any, Literal

import numpy as np

from sightline.data.rng import generator
from sightline.data.sizes import Aspect, Distribution, Drop, Measure, ResolutionSampling, SizeSampler, token_drop
from sightline.errors import InputError
from sightline.io.config import Count, Index, NonNegative, Positive, PositiveShare, Rising, config_dataclass

SkipUnreadable = Index | Literal["all"]
"""A number of images of a split that may be left out because they cannot be read, or all that cannot."""
Interpolation = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
# Steps whose patch sizes are drawn together.
_BLOCK = 1024


@config_dataclass
class PackingConfig:
    """How images of every size are shown in training, and packed.

    Attributes:
        tokens: slots of a step, all images together, their prefix tokens too; what they do not fill is not there.
        padded: rising lengths, for compilers that make a program for each shape: a step is padded to the least that
            holds it (`packing.padded_length`). None pads nothing.
        algorithm: `first_fit` (NaViT appendix B.3), or `best_fit`, which leaves less room but puts images of one
            length into one step.
        most_images: of a step (the paper's E_max); None sets no limit.
        resolutions: lowest and highest side in pixels, of which one is drawn for each image; None shows each at its
            own size.
        measure: what `distribution` is of: the side, or the area.
        distribution: uniform, normal, or biased to low or high sides (`ResolutionSampling`).
        aspect: `native` keeps each image's own, `square` crops.
        most_tokens: patches of one image, before any is dropped; larger ones are shown smaller. None takes what a
            step holds.
        drop: `constant`, `beta`, `length` or `schedule`; None drops no token.
        drop_options: its fields.
    """

    tokens: Count = 2048
    padded: tuple[Count, ...] | None = None
    algorithm: Literal["first_fit", "best_fit"] = "first_fit"
    most_images: Count | None = None
    resolutions: Annotated[tuple[Count, Count], Rising] | None = None
    measure: Measure = "side"
    distribution: Distribution = "uniform"
    aspect: Aspect = "native"
    most_tokens: Count | None = None
    drop: Drop | None = None
    drop_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.most_tokens is not None and self.most_tokens > self.tokens:
            problem = f"most_tokens {self.most_tokens}: more than a step holds ({self.tokens} tokens)"
            raise InputError(problem, field="most_tokens", value=self.most_tokens)
        lengths = self.padded
        if lengths is not None and (list(lengths) != sorted(set(lengths)) or lengths[-1:] < (self.tokens,)):
            problem = f"padded {list(lengths)}: expected rising lengths up to {self.tokens} or more"
            raise InputError(problem, field="padded", value=lengths)
        # What its parts refuse is refused here, before any image is read.
        self.sampler(1)

    def sampler(self, patch_size: int, num_prefix_tokens: int = 0, tubelet: int | None = None) -> SizeSampler:
        """What decides how an image is shown to a model of these patches (of so many frames) and prefix tokens; raises
        InputError where a value is out of range, or a drop's field is not known."""
        if self.drop is None and self.drop_options:
            problem = f"drop_options {self.drop_options}: there is no packing.drop that takes them"
            raise InputError(problem, field="drop_options", value=self.drop_options)
        drop = None if self.drop is None else token_drop(self.drop, self.drop_options)
        room = self.tokens - num_prefix_tokens
        if room < 1:
            problem = f"packing.tokens {self.tokens}: no room beside {num_prefix_tokens} prefix tokens"
            raise InputError(problem, field="packing.tokens", value=self.tokens)
        sampling = self.resolutions and ResolutionSampling(*self.resolutions, self.measure, self.distribution)
        return SizeSampler(patch_size, sampling, drop, min(self.most_tokens or room, room), self.aspect, tubelet)


@config_dataclass
class MixingConfig:
    """How training images are mixed.

    Attributes:
        mixup: alpha of Beta(alpha, alpha), of which the image's share is drawn (Zhang et al. 2018); 0 never mixes so.
        cutmix: the same for the share that a box of another image leaves (Yun et al. 2019). With both, half each.
        chance: that an image is mixed at all.
    """

    mixup: NonNegative = 0.0
    cutmix: NonNegative = 0.0
    chance: PositiveShare = 1.0

    def __post_init__(self) -> None:
        if self.mixup == self.cutmix == 0:
            problem = "mixup 0 and cutmix 0: mix nothing (expected one above 0, or mixing null)"
            raise InputError(problem, field="mixup", value=self.mixup)


@config_dataclass(kw_only=False)
class PatchSizes:
    """Patch sizes of a run that trains one model for all of them (Beyer et al. 2023, FlexiViT, algorithm 1): which one
    a batch has is drawn by the run's seed and the number of its step alone.

    Attributes:
        sizes: sides in pixels; FlexiViT has 48, 40, 30, 24, 20, 16, 15, 12, 10 and 8 at 240 px.
        chances: of each, in any unit; none for equal ones.
    """

    sizes: tuple[Count, ...]
    chances: tuple[Positive, ...] = ()

    def __post_init__(self) -> None:
        if not self.sizes or len(set(self.sizes)) < len(self.sizes):
            problem = f"sizes {list(self.sizes)}: expected one or more sides, each once"
            raise InputError(problem, field="sizes", value=self.sizes)
        if self.chances and len(self.chances) != len(self.sizes):
            problem = f"chances: {len(self.chances)} for {len(self.sizes)} sizes"
            raise InputError(problem, field="chances", value=self.chances)

    @property
    def shares(self) -> tuple[float, ...]:
        """The probability of each size."""
        chances = self.chances or (1.0,) * len(self.sizes)
        return tuple(chance / sum(chances) for chance in chances)

    def at_step(self, seed: int, step: int) -> int:
        """The number among `sizes` of the one of a step, whose images are of one batch, on however many ranks."""
        return int(_size_numbers(self.shares, seed, step // _BLOCK)[step % _BLOCK])

    def of_image(self, seed: int, epoch: int, index: int) -> int:
        """The same of an image that is packed, with others of its patch size."""
        return int(_size_number(self.shares, generator("patch_size/image/1", seed, index, epoch=epoch).random(1))[0])


@functools.lru_cache(maxsize=4)
def _size_numbers(shares: tuple[float, ...], seed: int, block: int) -> np.ndarray:
    return _size_number(shares, generator("patch_size/step/1", seed, block).random(_BLOCK))


def _size_number(shares: tuple[float, ...], draws: np.ndarray) -> np.ndarray:
    # What the last sum is rounded by must not leave a draw behind it.
    return np.minimum(np.searchsorted(np.cumsum(shares), draws, side="right"), len(shares) - 1)
