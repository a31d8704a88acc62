"""The registered models: widths and depths of the papers, crossed with patch sizes."""

from __future__ import annotations

from typing import Any

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


def _sizes() -> dict[str, dict[str, Any]]:
    sizes: dict[str, dict[str, Any]] = {
        f"vit_micro_patch{patch}": {
            "patch_size": patch, "dim": 192, "depth": 4, "heads": 12, "mlp_ratio": 4.0, "image_size": 8 * patch,
        }
        for patch in (4, 8)
    }  # fmt: skip
    for width, (dim, depth, heads, mlp_ratio) in _WIDTHS.items():
        for patch in _PATCHES:
            sizes[f"vit_{width}_patch{patch}"] = {
                "patch_size": patch, "dim": dim, "depth": depth, "heads": heads, "mlp_ratio": mlp_ratio,
                "image_size": 224,
            }  # fmt: skip
    return sizes


SIZES = _sizes()
"""Model name -> fields of `ViTConfig`."""
