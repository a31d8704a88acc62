"""NaViT's preparation: nothing but a resize that keeps the aspect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.data.sizes import View
from sightline.evaluation.preparations.base import Preparation


@dataclass(frozen=True)
class NaViTPreparation(Preparation):
    """Images keep their aspect, nothing is cut off, and each has as many patches as a square of the side that is asked
    for, as nearly as its aspect allows (NaViT section 3.1 and appendix D): a side of 224 pixels with patches of 16 is
    the view `tokens:196`, as rows name it. The filter is the model's."""

    name: ClassVar[str] = "navit"

    @classmethod
    def view(cls, resolution: int | View, patch_size: int) -> int | View:
        if isinstance(resolution, View):
            return resolution
        return View("tokens", max(round(resolution / patch_size), 1) ** 2)
