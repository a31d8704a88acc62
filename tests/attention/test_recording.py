"""What heads do can be computed from what is recorded: each layer by its number, pooling told apart."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import AttentionRecord, attend, record_attention
from sightline.models import create_model
from tests.contract.randomise import randomise_parameters


@pytest.mark.parametrize("pool", ["cls", "attention"])
@pytest.mark.parametrize("encoding", ["lookhere_90", "rope_axial"])
@torch.no_grad()
def test_each_layer_is_shown_once_with_what_gives_its_outputs(encoding: str, pool: str) -> None:
    model = create_model("vit_micro_patch4", encoding=encoding, pool=pool, depth=3, num_classes=5)
    randomise_parameters(model).eval()
    images = [torch.randn(3, 12, 20), torch.randn(3, 8, 8)]
    seen: list[AttentionRecord] = []
    plain = model(images)
    with record_attention(seen.append):
        # Who looks is shown every token, of which a class token alone is pooled.
        torch.testing.assert_close(model(images), plain)
    assert [one.layer for one in seen] == [0, 1, 2, *([None] if pool == "attention" else [])]
    model(images)
    assert len(seen) == 3 + (pool == "attention")
    for one in seen[:3]:
        assert one.q.shape[2] == one.queries.slots == one.keys.slots
        given = attend(one.q, one.k, one.v, one.pattern, one.keys, one.queries)
        start = 0
        for segment, slots in zip(one.keys.segments, one.keys.seqlens, strict=True):
            q, k, v = (part[:, :, start : start + slots] for part in (one.q, one.k, one.v))
            scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
            if one.pattern is not None:
                prefix = one.keys.num_prefix_tokens
                scores = scores + one.pattern.bias(segment, segment, prefix, prefix)
            torch.testing.assert_close(scores.softmax(-1) @ v, given[:, :, start : start + slots], rtol=1e-4, atol=1e-4)
            start += slots


@pytest.mark.parametrize("pool", ["cls", "attention"])
@pytest.mark.parametrize("encoding", ["lookhere_90", "rope_axial"])
def test_what_is_computed_again_in_the_backward_pass_is_recorded_once(encoding: str, pool: str) -> None:
    model = create_model("vit_micro_patch4", encoding=encoding, pool=pool, depth=3, num_classes=5)
    randomise_parameters(model).train()
    model.blocks.activation_checkpointing = True
    expected = [0, 1, 2, *([None] if pool == "attention" else [])]
    seen: list[AttentionRecord] = []
    with record_attention(seen.append):
        loss = model(torch.randn(2, 3, 12, 20)).square().sum()
        assert [one.layer for one in seen] == expected
        loss.backward()
    assert [one.layer for one in seen] == expected
    assert next(model.blocks.parameters()).grad is not None
    # Nor by who is gone when the backward pass comes, nor by who came since.
    later: list[AttentionRecord] = []
    with record_attention(seen.append):
        loss = model(torch.randn(2, 3, 12, 20)).square().sum()
    with record_attention(later.append):
        loss.backward()
    model(torch.randn(2, 3, 12, 20))
    assert [one.layer for one in seen] == 2 * expected
    assert later == []
