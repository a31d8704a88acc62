"""One query's attention is a row of the explicit matrix, under every kind of pattern and beside prefix tokens."""

from __future__ import annotations

import pytest
import torch

from sightline.analysis.attention_blocks import attention_blocks
from sightline.analysis.one_query import attention_of, visible_to
from sightline.analysis.views import visible_from
from sightline.attention.dispatch import record_attention
from tests.contract.contract import build, images

GRID = (3, 5)
ENCODINGS = (
    "learned_1d",
    "rope_axial",
    "lookhere_90",
    "lookhere",
    "alibi_2d",
    "rpe_learned",
    "lookhere_45+rpe_learned",
)
OPTIONS = {"lookhere": {"encoding_options": {"directions": "center"}, "heads": 4}}


def calls_of(name, **options):
    model = build(name, num_registers=2, **options, **OPTIONS.get(name, {}))
    calls = []
    with record_attention(calls.append), torch.no_grad():
        model(images(GRID, count=1))
    return model, [call for call in calls if call.layer is not None]


def explicit(call):
    """softmax(q k^T / sqrt(d) + bias), all of it: [heads, slots, slots]."""
    scores = call.q[0] @ call.k[0].transpose(-1, -2) * call.q.shape[-1] ** -0.5
    if call.pattern is not None:
        segment, before = call.keys.segments[0], call.keys.num_prefix_tokens
        scores = scores + call.pattern.bias(segment, segment, before, before)[0]
    return scores.softmax(-1)


@pytest.mark.parametrize("name", ENCODINGS)
@torch.no_grad()
def test_each_row_is_that_of_the_matrix(name):
    _, calls = calls_of(name)
    assert len(calls) == 2
    for call in calls:
        whole = explicit(call)
        assert whole.shape[-1] == 3 + 15
        blocks = torch.cat([block.attention[0] for block in attention_blocks(call)], dim=1)
        for slot in range(whole.shape[1]):
            row = attention_of(call, slot)
            torch.testing.assert_close(row, whole[:, slot], atol=1e-6, rtol=0)
            torch.testing.assert_close(row, blocks[:, slot], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ENCODINGS)
@torch.no_grad()
def test_what_is_visible_is_what_the_encoding_lets_be_seen(name):
    model, calls = calls_of(name)
    for patch in range(15):
        visible, _ = visible_from(model, GRID, divmod(patch, 5))
        found = torch.stack([visible_to(call, 3 + patch) for call in calls])
        assert found[..., :3].all()
        assert torch.equal(found[..., 3:].unflatten(-1, GRID), torch.from_numpy(visible))
    # Whatever is masked gets nothing, and what is visible something.
    for call in calls:
        for slot in (0, 2, 3, 10):
            assert torch.equal(attention_of(call, slot) > 0, visible_to(call, slot))
