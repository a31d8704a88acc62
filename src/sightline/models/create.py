"""From a name to a model."""

from __future__ import annotations

import dataclasses
from typing import Any

from sightline import registry
from sightline.errors import choose
from sightline.models.config import ViTConfig
from sightline.models.model import Model
from sightline.models.sizes import SIZES


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
    """The model that a configuration describes, with new weights.

    Raises:
        InputError: there is no architecture of that name; names the nearest.
    """
    return registry.find(Model, "sightline.models.architectures", "architecture", config.architecture)(config)


def create_model(name: str, **overrides: Any) -> Model:
    """A registered model with new weights and with fields of `ViTConfig` changed; see `sightline.create_model`."""
    return make_model(model_config(name, **overrides))
