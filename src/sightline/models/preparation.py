"""How images are prepared for a model, and what its outputs are called: what it is beside its architecture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from sightline.checks import require_number, require_whole
from sightline.errors import InputError
from sightline.grid import Grid
from sightline.models.head import ScoreLink

Interpolation = Literal["bicubic", "bilinear", "lanczos"]
LARGEST_SIDE = 1_000_000
"""Of an image in pixels, and of a grid: far beyond every model that was ever published."""


@dataclass(frozen=True)
class Preparation:
    """How images are prepared.

    Attributes:
        image_size: (height, width) or one side in pixels of the images that the model was trained on last, and that are
            prepared for it; any size runs.
        mean, std: normalisation of [0, 1] values.
        interpolation: the filter of the resize.
        crop: the fraction of the shorter side that the centre crop keeps.
    """

    image_size: int | tuple[int, int] = 224
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    interpolation: Interpolation = "bicubic"
    crop: float = 1.0

    def check_preparation(self) -> None:
        """Raise InputError for a value out of range."""
        require_number("crop", self.crop, above=True)
        if self.crop > 1:
            raise InputError(f"crop {self.crop}: expected more than 0 and at most 1")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not isinstance(values, tuple) or len(values) != 3:
                raise InputError(f"{name} {values!r}: expected three numbers")
            for value in values:
                require_number(name, value, low=-math.inf if name == "mean" else 0.0, above=name == "std")
        for side in Grid.checked(self.image_size, "image_size"):
            require_whole("image_size", side, 1, LARGEST_SIDE)


@dataclass(frozen=True)
class Labels:
    """What outputs are called, and how they are read.

    Attributes:
        class_names: of the outputs, or None where they are not known.
        score_link: how logits are read as scores: `softmax`, or `sigmoid` of each class where a binary cross entropy
            trained it.
    """

    class_names: tuple[str, ...] | None = None
    score_link: ScoreLink = "softmax"

    def check_labels(self, num_classes: int) -> None:
        """Raise InputError for names that are none, or are not as many as the classes."""
        names = self.class_names
        if names is None:
            return
        if not (isinstance(names, tuple) and all(isinstance(name, str) for name in names)):
            raise InputError(f"class_names {names!r}: expected a list of texts")
        if len(names) != num_classes:
            raise InputError(f"class_names: {len(names)} names for {num_classes} classes")
