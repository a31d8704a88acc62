"""From a name to a model."""

from __future__ import annotations

import dataclasses
from typing import Any

from sightline.errors import choose
from sightline.models.config import ViTConfig
from sightline.models.model import Model
from sightline.models.sizes import SIZES
from sightline.models.vit import VisionTransformer


def list_models() -> list[str]:
    """The registered model names, sorted."""
    return sorted(SIZES)


def model_config(name: str, **overrides: Any) -> ViTConfig:
    """The configuration of a registered model with fields changed.

    Raises:
        InputError: an unknown name or field (names the nearest), or a value out of range.
    """
    if name not in SIZES:
        raise choose("model", name, SIZES)
    _check_options(f"model {name}", overrides)
    return ViTConfig(**{**SIZES[name], **overrides})


def changed(config: ViTConfig, **overrides: Any) -> ViTConfig:
    """A configuration with fields changed, checked anew.

    Raises:
        InputError: an unknown field (names the nearest), or a value out of range.
    """
    _check_options("model", overrides)
    return config.replace(**overrides)


def _check_options(what: str, overrides: dict[str, Any]) -> None:
    allowed = [field.name for field in dataclasses.fields(ViTConfig)]
    for key in overrides:
        if key not in allowed:
            raise choose(f"{what}: option", key, allowed)


def make_model(config: ViTConfig) -> Model:
    """The model that a configuration describes, with new weights."""
    return VisionTransformer(config)


def create_model(name: str, *, encoding: str = "learned_1d", num_classes: int = 1000, **overrides: Any) -> Model:
    """Build a vision transformer.

    Args:
        name: a registered model (`list_models()`), as "vit_base_patch16".
        encoding: a registered position encoding (`list_encodings()`), or some joined by "+".
        num_classes: outputs of the head; 0 for features.
        **overrides: fields of `ViTConfig`, as `image_size=384`, `pool="mean"`, `encoding_options={"theta": 100.0}`.

    Raises:
        InputError: an unknown name or field (names the nearest), or a value out of range.
    """
    return make_model(model_config(name, encoding=encoding, num_classes=num_classes, **overrides))
