"""From a name to a model."""

from __future__ import annotations

from typing import Any

from sightline import registry
from sightline.checks import configure
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
    return configure(ViTConfig, {**SIZES[name], **overrides}, f"model {name}")


def make_model(config: ViTConfig) -> Model:
    """The model that a configuration describes, with new weights.

    Raises:
        InputError: there is no architecture of that name; names the nearest.
    """
    return registry.find(Model, "sightline.models.architectures", "architecture", config.architecture)(config)


def create_model(name: str, **overrides: Any) -> Model:
    """A registered model with new weights and with fields of `ViTConfig` changed; see `sightline.create_model`."""
    return make_model(model_config(name, **overrides))
