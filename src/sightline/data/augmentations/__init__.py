"""Augmentations change the pixels of training images that are cut to their size; one kind a file in this folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from sightline import registry
from sightline.data.rng import generator
from sightline.errors import InputError
from sightline.io.config import build_config

Augmentations = tuple["Augmentation", ...]


class Augmentation(ABC):
    """One kind, in a file of its own: a `config_dataclass`, whose fields are its options.

    Attributes:
        name: as it is configured.
        moves_pixels: what is shown may stand elsewhere afterwards; such a one is for labels alone, since masks and
            boxes do not follow it.
    """

    name: ClassVar[str]
    moves_pixels: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The image changed, uint8 [height, width, 3] as it is given; it itself is left as it is.

        Args:
            rng: the image's own, for this augmentation alone.
        """


def make_augmentations(options: Mapping[str, Mapping[str, Any]]) -> Augmentations:
    """Augmentations by name with their options, in that order; raises InputError where a name or an option is not known
    (names the nearest), or a value is refused."""
    if not isinstance(options, Mapping):
        expected = "options by name, as {'colour_jitter': {}}"
        raise InputError(f"augment = {options!r}: expected {expected}", field="augment", value=options)
    kinds = {name: registry.find(Augmentation, __name__, "augmentation", name) for name in options}
    return tuple(build_config(kind, options[name], f"augment.{name}") for name, kind in kinds.items())


def apply_augmentations(
    image: np.ndarray, augmentations: Sequence[Augmentation], *, seed: int, epoch: int, index: int
) -> np.ndarray:
    """An image uint8 [height, width, 3], or a clip with frames before, after all of them, in their order: a function of
    its arguments alone. What each draws hangs on no other, and is the same for every frame."""
    for one in augmentations:
        # Each frame with a generator of its own that begins alike, so that all are changed alike.
        frames = [
            one(frame, generator(f"augment/{one.name}/1", seed, index, epoch=epoch))
            for frame in (image if image.ndim > 3 else [image])
        ]
        image = np.stack(frames) if image.ndim > 3 else frames[0]
    return image
