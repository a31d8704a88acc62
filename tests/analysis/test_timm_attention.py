"""What is recorded of a model of timm is timm's own attention, layer by layer, with its fused kernels switched off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.analysis.attention_blocks import attention_blocks
from sightline.attention import AttentionRecord, record_attention
from sightline.models import Model
from tests.convert.originals import imported, original

NAMES = {
    "vit_tiny_patch16_224": "CLS, a learned table",
    "vit_wee_patch16_reg1_gap_256": "a register, mean",
    "vit_tiny_patch16_dinov3_qkvb": "CLS and four registers, rotation in halves",
    "eva02_tiny_patch14_336": "rotation beside a table",
    "vit_small_patch16_rope_mixed_ape_224": "learned frequencies",
    "beit_base_patch16_224": "a learned relative table with values of prefix tokens",
    "vit_pe_core_tiny_patch16_384": "attention pooling over all tokens",
}


def theirs_of(module: Any, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What each softmax of timm gives in a pass: [images, heads, queries, keys]."""
    for part in module.modules():
        if hasattr(part, "fused_attn"):
            part.fused_attn = False
    kept: list[Tensor] = []
    plain = Tensor.softmax

    def softmax(scores: Tensor, *args: Any, **options: Any) -> Tensor:
        kept.append(plain(scores, *args, **options))
        return kept[-1]

    with monkeypatch.context() as patched, torch.inference_mode():
        patched.setattr(Tensor, "softmax", softmax)
        module(images)
    return kept


def ours_of(model: Model, images: Tensor, block_bytes: int) -> list[Tensor]:
    """What is computed again of each call, put together of its blocks."""
    calls: list[AttentionRecord] = []
    with torch.inference_mode(), record_attention(calls.append):
        model(images)
    assert [call.layer for call in calls[: len(model.blocks)]] == list(range(len(model.blocks)))
    whole = []
    for call in calls:
        rows, heads, queries, _ = call.q.shape
        one = torch.full((rows, heads, queries, call.k.shape[2]), torch.nan)
        for block in attention_blocks(call, block_bytes):
            one[block.images, :, block.first : block.first + block.attention.shape[2]] = block.attention
        whole.append(one)
    return whole


@pytest.mark.parametrize("name", NAMES)
def test_each_layer_is_timms_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"depth": 3, "num_classes": 5}
    if name.startswith("beit"):
        given |= {"embed_dim": 48, "num_heads": 3}
    theirs = original(name, **given)
    model = imported(theirs, {"model": name, **given})
    images = torch.randn(2, 3, *(side * model.config.patch_size for side in model.config.train_grid))
    expected = theirs_of(theirs, images, monkeypatch)
    assert len(expected) == 3 + (model.config.pool == "attention")
    for block_bytes in (100_000, 1 << 30):
        found = ours_of(model, images, block_bytes)
        assert len(found) == len(expected)
        for layer, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert one.shape == other.shape, layer
            assert other.std() > 0.1 / other.shape[-1], "flat attention would prove nothing"
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
