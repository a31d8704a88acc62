"""Attention whose measures are known: of one token alone, of all alike, of equal heads, of fields of view."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.analysis.attention_blocks import attention_blocks
from sightline.analysis.images import Normalised
from sightline.analysis.measures.attention_maps import AttentionRollout
from sightline.analysis.measures.base import Measure
from sightline.analysis.measures.heads import AttentionDistance, Entropy, HeadDistance, HeadDiversity, mean_distance
from sightline.attention import AttentionRecord, Pattern
from sightline.models import create_model
from sightline.tokens.layout import TokenLayout

GRID, HEADS, DIM = (3, 5), 4, 12
CELLS = [np.array(cell) for cell in itertools.product(*map(range, GRID))]


def arrays_of(
    kinds: list[type[Measure]], q: Tensor, k: Tensor, *, prefix: int = 0, pattern: Pattern | None = None
) -> dict[str, np.ndarray]:
    """What measures find in one layer of one image on GRID, of these queries and keys [heads, slots, head_dim]."""
    model = create_model("vit_micro_patch4", encoding="none", depth=1, heads=q.shape[0], dim=48, pool="mean")
    layout = TokenLayout.uniform(GRID, 1, num_prefix_tokens=prefix)
    batch = Normalised(torch.empty(0), layout, {}, torch.arange(1), ["one"], [{}])
    measures = [kind(model) for kind in kinds]
    for one in measures:
        one.begin(batch)
        for block in attention_blocks(AttentionRecord(0, q[None], k[None], k[None], pattern, layout, layout), 700):
            one.attention(block)
        one.end(torch.empty(0), layout)
    return {name: array for one in measures for name, array in one.arrays().items()}


ALL: list[type[Measure]] = [AttentionDistance, Entropy, HeadDiversity, HeadDistance]


def test_who_looks_at_itself_spans_nothing() -> None:
    itself = 100 * torch.eye(15).expand(HEADS, -1, -1)
    found = arrays_of([*ALL, AttentionRollout], itself, itself)
    for name in ("distance", "distance_of_grid", "weighted_sum", "entropy", "of_visible", "jsd", "l1", "l2"):
        np.testing.assert_allclose(found[name], 0, atol=1e-6, err_msg=name)
    expected = np.zeros((1, 1, *GRID))
    expected[0, 0, 1, 2] = 1
    np.testing.assert_allclose(found["rollout"], expected, atol=1e-6)


@pytest.mark.parametrize("prefix", [0, 2])
def test_who_looks_everywhere_alike_spans_the_mean_of_the_grid(prefix: int) -> None:
    q = torch.zeros(HEADS, 15 + prefix, DIM)
    found = arrays_of([*ALL, AttentionRollout], q, torch.randn_like(q), prefix=prefix)
    apart = np.mean([np.linalg.norm(a - b) for a in CELLS for b in CELLS])
    np.testing.assert_allclose(mean_distance(GRID), apart, rtol=1e-12)
    np.testing.assert_allclose(found["distance"], apart, rtol=1e-5)
    np.testing.assert_allclose(found["distance_of_grid"], 1, rtol=1e-5)
    np.testing.assert_allclose(found["weighted_sum"], apart * 15 / (15 + prefix), rtol=1e-5)
    np.testing.assert_allclose(found["entropy"], np.log(15 + prefix), rtol=1e-5)
    np.testing.assert_allclose(found["of_visible"], 1, rtol=1e-5)
    for name in ("jsd", "l1", "l2"):
        np.testing.assert_allclose(found[name], 0, atol=1e-6, err_msg=name)
    expected = np.full(GRID, 0.5 / (15 + prefix))
    expected[1, 2] += 0.5
    np.testing.assert_allclose(found["rollout"][0, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(found["to_prefix"][..., 0], 0.5 * prefix / (15 + prefix), atol=1e-6)


def test_equal_heads_have_no_diversity_and_heads_apart_have_the_most() -> None:
    q, k = (torch.randn(1, 16, DIM).expand(HEADS, -1, -1) for _ in "qk")
    equal = arrays_of(ALL, q, k, prefix=1)
    for name in ("jsd", "l1", "l2"):
        np.testing.assert_allclose(equal[name], 0, atol=1e-6, err_msg=name)
    assert equal["entropy"].min() > 0.1
    # Each head looks at one token, each at another.
    k = torch.zeros(HEADS, 16, DIM)
    k[range(HEADS), range(3, 3 + HEADS), 0] = 1
    q = torch.zeros_like(k)
    q[..., 0] = 1000
    apart = arrays_of(ALL, q, k, prefix=1)
    np.testing.assert_allclose(apart["jsd"], np.log(HEADS), rtol=1e-6)
    np.testing.assert_allclose(apart["l1"], 2, rtol=1e-6)
    np.testing.assert_allclose(apart["l2"], np.sqrt(2), rtol=1e-6)


@pytest.mark.parametrize("encoding", ["lookhere_180", "lookhere_90", "lookhere_45"])
def test_fields_of_view_without_a_penalty_show_what_is_visible_alike(encoding: str) -> None:
    """The knob at 0 keeps the mask: uniform attention over the visible patches and the prefix tokens."""
    model = create_model("vit_micro_patch4", encoding=encoding, depth=1, heads=12, dim=48, num_classes=3)
    model.set_knob(0)
    layout = TokenLayout.uniform(GRID, 1)
    pattern = model.encoding.pattern(0, layout)
    assert pattern is not None
    q = torch.zeros(12, 16, 4)
    found = arrays_of(ALL, q, q, prefix=1, pattern=pattern)
    table = pattern.tables(layout.segments[0].grid, layout.device)[0] > -1e30
    expected = {"distance": np.zeros(12), "entropy": np.zeros(12), "of_visible": np.zeros(12)}
    counts = np.zeros((12, 15))
    for head, (number, query) in itertools.product(range(12), enumerate(CELLS)):
        seen = [key for key in CELLS if table[head, key[0] - query[0] + 2, key[1] - query[1] + 4]]
        counts[head, number] = len(seen)
        expected["distance"][head] += np.mean([np.linalg.norm(key - query) for key in seen]) / 15
        expected["entropy"][head] += np.log(len(seen) + 1) / 15
        expected["of_visible"][head] += 1 / 15
    assert counts.min() < 15
    for name, array in expected.items():
        np.testing.assert_allclose(found[name][0, 0], array, rtol=1e-5, err_msg=name)
    assert found["jsd"] > 0.05
