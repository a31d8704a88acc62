"""timm's own models against ours with their weights: each option of the family, at the training size and off it."""

from __future__ import annotations

import pytest

from tests.convert.originals import compare, imported, original

# Name -> what it is here for. Those up to the line run by default.
NAMES: dict[str, str] = {
    "vit_tiny_patch16_224": "CLS, learned table with a row for the CLS token",
    "vit_xsmall_patch16_clip_224": "norm before the blocks, no bias of patches, eps 1e-5",
    "vit_wee_patch16_reg1_gap_256": "a register, mean with a norm after it, no embedding of prefix tokens, LayerScale",
    "deit3_small_patch16_224": "no_embed_class, LayerScale",
    "eva02_tiny_patch14_336": "SwiGLU, no bias of k, squeezed rotation (y first) beside a table",
    "vit_small_patch16_rope_mixed_ape_224": "learned frequencies beside a table",
    "vit_tiny_patch16_dinov3_qkvb": "centred rotation in halves, four registers, biases of q and v, eps 1e-5",
    "vit_pe_core_tiny_patch16_384": "probe over all tokens, rotation with an offset (x first) beside a table",
    "naflexvit_base_patch16_map": "NaFlexViT with a probe over patches",
    "test_vit2": "mean, a register with an embedding",
    "test_vit3": "probe over all tokens",
    "test_vit4": "RMSNorm",
    # ---- slow from here
    "vit_small_patch8_224": "small patches",
    "vit_base_patch16_224_miil": "no biases of q, k and v",
    "vit_base_patch32_384": "large patches",
    "vit_base_patch16_clip_quickgelu_224": "quick GELU",
    "vit_base_patch16_siglip_224": "probe, no prefix tokens",
    "vit_base_patch16_siglip_gap_224": "mean, norm before it, no prefix tokens",
    "vit_medium_patch16_gap_240": "no biases of q, k and v, LayerScale, 240 pixels",
    "vit_betwixt_patch16_reg4_gap_256": "four registers",
    "vit_so150m_patch16_reg4_map_256": "probe with registers, another MLP",
    "vit_small_patch14_dinov2": "518 pixels, LayerScale",
    "vit_small_patch14_reg4_dinov2": "registers without embedding",
    "vit_base_patch14_reg1_tipsv2": "a register without embedding, patches of 14",
    "vit_base_patch16_radio_v3": "RADIO: seven registers, no last norm",
    "vit_base_patch16_plus_240": "wider, LayerScale, 240 pixels",
    "flexivit_small": "no_embed_class, 240 pixels",
    "beit3_base_patch16_224": "inner norms of attention and MLP, eps 1e-5",
    "deit_small_patch16_224": "the first DeiT",
    "beit_base_patch16_224": "a relative table a layer, no bias of k",
    "beitv2_base_patch16_224": "the same, as published later",
    "eva02_base_patch14_224": "q, k and v apart, SwiGLU in two parts with a norm",
    "eva02_base_patch16_clip_224": "the same with a norm in the attention, CLS",
    "vit_base_patch16_rope_reg1_gap_256": "squeezed rotation (y first), no bias of k",
    "vit_mediumd_patch16_rope_reg1_gap_256": "the same without biases of q, k and v",
    "vit_small_patch16_rope_224": "x first",
    "vit_small_patch16_rope_ape_224": "x first beside a table",
    "vit_small_patch16_rope_mixed_224": "learned frequencies",
    "vit_small_patch16_dinov3": "no biases of q, k and v",
    "vit_small_plus_patch16_dinov3": "SwiGLU whose width is aligned",
    "vit_small_plus_patch16_dinov3_qkvb": "the same with biases",
    "vit_small_patch16_lingbot": "centred rotation, CLS",
    "vit_pe_spatial_tiny_patch16_512": "mean over patches alone, no last norm",
    "naflexvit_base_patch16_gap": "NaFlexViT, mean",
    "naflexvit_base_patch16_siglip": "its table resized bilinearly, smoothed",
    "naflexvit_base_patch16_par_gap": "the table keeps the aspect ratio",
    "naflexvit_base_patch16_parfac_gap": "factorised table that does",
}
QUICK = list(NAMES)[:12]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_every_option_of_the_family(name: str) -> None:
    """Two blocks, all else as the name says: logits, features, both ways, and the shape that timm is told."""
    config = {"model": name, "depth": 2}
    theirs = original(name, depth=2)
    compare(imported(theirs, config), theirs)
