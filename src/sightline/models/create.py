"""From a name to a model: the widths and depths of the papers, crossed with patch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sightline import registry
from sightline.errors import InputError, require_known
from sightline.io.config import build_config
from sightline.models.config import ViTConfig
from sightline.models.model import Model

# dim, depth, heads, hidden / dim (ViT table 1; giant from Zhai et al. 2022, table 2; tiny and small from DeiT).
_WIDTHS: dict[str, tuple[int, int, int, float]] = {
    "tiny": (192, 12, 3, 4.0),
    "small": (384, 12, 6, 4.0),
    "base": (768, 12, 12, 4.0),
    "large": (1024, 24, 16, 4.0),
    "huge": (1280, 32, 16, 4.0),
    "giant": (1408, 40, 16, 48 / 11),
}
_PATCHES = (4, 8, 14, 16, 32)


def _fields(patch: int, image: int, dim: int, depth: int, heads: int, mlp_ratio: float) -> dict[str, Any]:
    sides = {"patch_size": patch, "image_size": image}
    return {**sides, "dim": dim, "depth": depth, "heads": heads, "mlp_ratio": mlp_ratio}


SIZES = {f"vit_micro_patch{patch}": _fields(patch, 8 * patch, 192, 4, 12, 4.0) for patch in (4, 8)} | {
    f"vit_{width}_patch{patch}": _fields(patch, 224, *trunk) for width, trunk in _WIDTHS.items() for patch in _PATCHES
}
# Each block of the ViT is two: ViT appendix D.6.
SIZES |= {
    f"axial_{name}": {**SIZES[name], "depth": 2 * SIZES[name]["depth"], "architecture": "axial", "pool": "mean"}
    for name in ("vit_micro_patch4", "vit_micro_patch8", "vit_base_patch16", "vit_base_patch32")
}
"""Model name -> fields of `ViTConfig`."""


def swin_fields(depths: Sequence[int], heads: Sequence[int], window: Any, **options: Any) -> dict[str, Any]:
    """The fields of `ViTConfig` that every Swin has alike, and those of its stages and windows."""
    return {
        "depth": sum(depths),
        "heads": heads[0],
        "architecture": "swin",
        "architecture_options": {"depths": list(depths), "heads": list(heads), "window": window, **options},
        "encoding": "rpe_learned",
        "pool": "mean",
        "patch_norm": "after",
        "norm_eps": 1e-5,
    }


def _swin(depths: tuple[int, ...], heads: tuple[int, ...], dim: int, window: int, image: int) -> dict[str, Any]:
    sides = {"patch_size": 4, "image_size": image}
    return {**sides, "dim": dim, "mlp_ratio": 4.0, **swin_fields(depths, heads, window)}


# Swin section 3.3; the smallest is for grids of 8 x 8, which carry two stages and windows of 4.
SIZES |= {
    "swin_micro_patch4": _swin((2, 4), (6, 12), 96, 4, 32),
    "swin_tiny_patch4_window7": _swin((2, 2, 6, 2), (3, 6, 12, 24), 96, 7, 224),
    "swin_small_patch4_window7": _swin((2, 2, 18, 2), (3, 6, 12, 24), 96, 7, 224),
    "swin_base_patch4_window7": _swin((2, 2, 18, 2), (4, 8, 16, 32), 128, 7, 224),
}


def list_models() -> list[str]:
    """The registered model names, sorted."""
    return sorted(SIZES)


def model_config(name: str, **overrides: Any) -> ViTConfig:
    """The configuration of a registered model with fields changed.

    Raises:
        InputError: an unknown name or field (names the nearest), or a value out of range.
    """
    require_known("model", name, SIZES)
    return build_config(ViTConfig, {**SIZES[name], **with_architecture(SIZES[name], overrides)}, f"model {name}")


def with_architecture(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of a configuration with all options of its architecture: those that are not given stay as they were,
    unless it is an architecture of another kind."""
    was, given = before.get("architecture", "vit"), changes.get("architecture_options", {})
    now = changes.get("architecture", was)
    # What is no mapping and no name is refused as every field is.
    if not isinstance(given, Mapping) or not isinstance(now, str):
        return dict(changes)
    same = now == was or issubclass(architecture_class(now), architecture_class(was))
    own = before.get("architecture_options", {}) if same else {}
    return {**changes, "architecture_options": {**own, **given}}


def make_model(config: ViTConfig) -> Model:
    """The model that a configuration describes, with new weights.

    Raises:
        InputError: there is no architecture of that name; names the nearest.
    """
    return architecture_class(config.architecture)(config)


def architecture_class(name: str) -> type[Model]:
    """The architecture of that name.

    Raises:
        InputError: there is none; names the nearest.
    """
    if not isinstance(name, str):
        raise InputError(f"architecture {name!r}: expected the name of one")
    return registry.find(Model, "sightline.models.architectures", "architecture", name)


def create_model(name: str, **overrides: Any) -> Model:
    """A registered model with new weights and with fields of `ViTConfig` changed; see `sightline.create_model`."""
    return make_model(model_config(name, **overrides))
