"""Options that a class of encodings has unless it says otherwise."""

from __future__ import annotations

from typing import Literal

from sightline.io.config import config_dataclass


@config_dataclass
class EncodingConfig:
    """No options."""


@config_dataclass
class AddedConfig:
    """What the configuration of every `AddedEncoding` has.

    Attributes:
        at: where it is added (ViT appendix D.4, table 8): at the `input` of the first layer; at that of `every` layer,
            of weights of its own in each; or `shared`, the same before every layer.
    """

    at: Literal["input", "every", "shared"] = "input"
