"""What an augmentation is: it changes the pixels of a training image that is cut to its size already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from sightline import registry
from sightline.data.rng import generator
from sightline.io.config import build_config

Augmentations = tuple["Augmentation", ...]


class Augmentation(ABC):
    """One kind, in a file of its own: a `config_dataclass`, whose fields are its options.

    Attributes:
        name: as it is configured.
        moves: what is seen may stand elsewhere afterwards; such a one is for labels alone, since masks and boxes do not
            follow it.
    """

    name: ClassVar[str]
    moves_pixels: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, image: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        """The image changed, uint8 [height, width, 3] as it is given; it itself is left as it is.

        Args:
            draws: the image's own, for this augmentation alone.
        """


def make_augmentations(options: Mapping[str, Mapping[str, Any]]) -> Augmentations:
    """Augmentations by name with their options, in that order.

    Raises:
        InputError: a name or an option is not known (names the nearest), or a value is refused.
    """
    made = []
    for name, own in options.items():
        kind = registry.find(Augmentation, "sightline.data.augmentations", "augmentation", name)
        made.append(build_config(kind, own, f"augment.{name}"))
    return tuple(made)


def apply_augmentations(
    image: np.ndarray, augmentations: Sequence[Augmentation], *, seed: int, epoch: int, index: int
) -> np.ndarray:
    """An image after all of them, in their order: a function of its arguments alone. What each draws hangs on no other,
    and is the same for every frame of a clip.

    Args:
        image: uint8 [height, width, 3], or a clip [frames, height, width, 3]; the same is returned.
        seed, epoch, index: as `Source.example`.
    """
    if image.ndim > 3:
        # Each frame with generators of its own that begin alike, so that all are changed alike.
        frames = (apply_augmentations(frame, augmentations, seed=seed, epoch=epoch, index=index) for frame in image)
        return np.stack(list(frames)) if augmentations else image
    for one in augmentations:
        image = one(image, generator(f"augment/{one.name}/1", seed, index, epoch=epoch))
    return image
