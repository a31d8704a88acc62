"""Which patch size a batch of training has: drawn for each, by the run's seed and the number of its step alone."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from sightline.data.randomness import generator
from sightline.errors import InputError
from sightline.io.checks import STRICT, require_list, require_number, require_whole

# Steps whose patch sizes are drawn together.
_AT_ONCE = 1024


@dataclass(frozen=True)
class PatchSizes:
    """Patch sizes of a run that trains one model for all of them (Beyer et al. 2023, FlexiViT, algorithm 1).

    Attributes:
        sizes: sides in pixels; FlexiViT has 48, 40, 30, 24, 20, 16, 15, 12, 10 and 8 at 240 px.
        chances: of each, in any unit; none for equal ones.
    """

    __pydantic_config__ = STRICT

    sizes: tuple[int, ...]
    chances: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("sizes", "chances"):
            require_list(f"patch_sizes.{name}", getattr(self, name))
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.sizes or len(set(self.sizes)) < len(self.sizes):
            raise InputError(f"patch_sizes.sizes {list(self.sizes)}: expected one or more sides, each once")
        for side in self.sizes:
            require_whole("patch_sizes.sizes", side, 1)
        if self.chances and len(self.chances) != len(self.sizes):
            raise InputError(f"patch_sizes.chances: {len(self.chances)} for {len(self.sizes)} sizes")
        for chance in self.chances:
            require_number("patch_sizes.chances", chance, above=True)

    @property
    def shares(self) -> tuple[float, ...]:
        """The probability of each size."""
        chances = self.chances or (1.0,) * len(self.sizes)
        return tuple(chance / sum(chances) for chance in chances)

    def at_step(self, seed: int, step: int) -> int:
        """The number among `sizes` of the one of a step, whose images are of one batch, on however many ranks."""
        return int(_of_steps(self.shares, seed, step // _AT_ONCE)[step % _AT_ONCE])

    def of_image(self, seed: int, epoch: int, index: int) -> int:
        """The same of an image that is packed, with others of its patch size."""
        return int(_chosen(self.shares, generator("patch_size/image/1", seed, index, epoch=epoch).random(1))[0])


@functools.lru_cache(maxsize=4)
def _of_steps(shares: tuple[float, ...], seed: int, block: int) -> np.ndarray:
    return _chosen(shares, generator("patch_size/step/1", seed, block).random(_AT_ONCE))


def _chosen(shares: tuple[float, ...], draws: np.ndarray) -> np.ndarray:
    # What the last sum is rounded by must not leave a draw behind it.
    return np.minimum(np.searchsorted(np.cumsum(shares), draws, side="right"), len(shares) - 1)
