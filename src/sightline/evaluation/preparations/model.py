"""The model's own preparation, as timm validates its models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.evaluation.preparations.base import Preparation


@dataclass(frozen=True)
class OwnPreparation(Preparation):
    """The model's crop fraction, crop mode and filter, as `preprocessing` and `evaluate --data` take them: pixel by
    pixel timm's `create_transform` of that size."""

    name: ClassVar[str] = "model"
