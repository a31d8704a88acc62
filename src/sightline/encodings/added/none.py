"""No position encoding: the transformer is a function on a set."""

from __future__ import annotations

from typing import ClassVar

from sightline.encodings.base import PositionEncoding
from sightline.io.config import config_dataclass


@config_dataclass
class NoneConfig:
    """`NoEncoding` has nothing to configure."""


class NoEncoding(PositionEncoding):
    """Every hook a no-op: the order of the patches does not matter (ViT appendix D.4, the baseline)."""

    names: ClassVar = {"none": {}}
    Config: ClassVar = NoneConfig
    source: ClassVar = "ViT (2021), appendix D.4"
    extrapolation: ClassVar = "nothing to do"
    symmetric: ClassVar = True
    axes: ClassVar = None
