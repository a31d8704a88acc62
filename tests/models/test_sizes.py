"""Every registered model is what its name says."""

from __future__ import annotations

import re

import pytest
import torch

from sightline.models import ViTConfig, create_model, list_models, model_config

WIDTHS = {
    "tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16),
    "huge": (1280, 32, 16), "giant": (1408, 40, 16),
}  # fmt: skip
# Swin section 3.3; the smallest is ours.
SWINS = {
    "micro": (96, [2, 4], 6), "tiny": (96, [2, 2, 6, 2], 3), "small": (96, [2, 2, 18, 2], 3),
    "base": (128, [2, 2, 18, 2], 4),
}  # fmt: skip
ARCHITECTURES = {"vit": "vit", "axial_vit": "axial", "swin": "swin"}
NAME = re.compile(r"(vit|axial_vit|swin)_([a-z]+)_patch(\d+)(?:_window(\d+))?")
# Millions of parameters with a CLS token (Swins have none) and 1000 classes, as published.
PUBLISHED = {
    "vit_tiny_patch16": 5.72, "vit_small_patch16": 22.05, "vit_base_patch16": 86.6, "vit_base_patch32": 88.2,
    "vit_large_patch16": 304.3, "vit_huge_patch14": 632.0, "vit_giant_patch14": 1012.6,
    "swin_tiny_patch4_window7": 28.29, "swin_small_patch4_window7": 49.61, "swin_base_patch4_window7": 87.77,
}  # fmt: skip


@pytest.mark.parametrize("name", list_models())
def test_every_model_builds(name: str) -> None:
    config = model_config(name)
    assert isinstance(config, ViTConfig)
    # A window stands behind the patch of a "swin"; each layer of a "vit" is two of an "axial_vit".
    parts = NAME.fullmatch(name)
    assert parts is not None
    family, width, patch, window = parts.groups()
    assert config.architecture == ARCHITECTURES[family]
    assert config.patch_size == int(patch)
    if window:
        assert config.architecture_options["window"] == int(window)
    if family == "swin":
        assert (config.dim, config.architecture_options["depths"], config.heads) == SWINS[width]
    elif width in WIDTHS:
        dim, depth, heads = WIDTHS[width]
        assert (config.dim, config.depth, config.heads) == (dim, depth * (1 + (family == "axial_vit")), heads)
    with torch.device("meta"):
        model = create_model(name)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert len(model.blocks) == config.depth
    if name in PUBLISHED:
        millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
        assert millions == pytest.approx(PUBLISHED[name], rel=0.002)


@pytest.mark.parametrize("name", ["lookhere_90", "rope_mixed", "learned_2d", "rpe_learned"])
def test_encodings_on_the_meta_device(name: str) -> None:
    """A base model of each kind of encoding, built and run without memory, as one does to count before a large run."""
    with torch.device("meta"):
        model = create_model("vit_base_patch16", encoding=name)
        logits = model(torch.empty(2, 3, 224, 160))
        listed = model([torch.empty(3, 32, 48), torch.empty(3, 16, 16)])
    assert logits.shape == (2, 1000)
    assert listed.shape == (2, 1000)
    assert logits.is_meta


@pytest.mark.parametrize("name", ["vit_tiny_patch16", "vit_giant_patch14"])
@pytest.mark.parametrize("encoding", ["lookhere_90", "rope_axial", "rope_mixed", "sincos_2d", "rpe_learned"])
def test_encodings_fit_other_sizes(name: str, encoding: str) -> None:
    """3 heads and 16; a head_dim of 64 and 88."""
    with torch.device("meta"):
        create_model(name, encoding=encoding)
