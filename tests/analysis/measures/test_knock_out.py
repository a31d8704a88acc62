"""Heads switched off give zeros and nothing else changes; directions are the fields of view of the pattern."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from sightline import create_encoding
from sightline.analysis import knock_out
from sightline.analysis.measures.knock_out import directions, switched_off
from tests.analysis.measures import token_cases as cases

CLOCKWISE = ["up", "up-right", "right", "down-right", "down", "down-left", "left", "up-left"]


def by_weights(model, heads):
    """The same by other means: the weights that read these heads are zero."""
    for layer, head in heads:
        attention = model.blocks[layer].attn
        width = attention.head_dim
        with torch.no_grad():
            attention.proj.weight[:, head * width : (head + 1) * width] = 0
    return model


@pytest.mark.parametrize("heads", [[(0, 2)], [(1, 0), (1, 3)], [(0, 1), (1, 1)], []])
@pytest.mark.parametrize("shown", ["plain", "several grids", "a list of one", "one patch"])
@torch.no_grad()
def test_outputs_are_zero(shown, heads):
    model = cases.model()
    given = cases.SHOWN[shown](model)
    whole = model(given)
    with switched_off(model, heads):
        found = model(given)
    torch.testing.assert_close(found, by_weights(cases.model(), heads)(given), rtol=0, atol=1e-10)
    assert bool(heads) == bool((found - whole).abs().max() > 1e-3)
    assert torch.equal(model(given), whole)


@torch.no_grad()
def test_nested_and_after_an_exception():
    model, both = cases.model(), [(0, 1), (1, 2)]
    given = cases.SHOWN["several grids"](model)
    whole = model(given)
    with switched_off(model, both[:1]):
        with switched_off(model, both):
            torch.testing.assert_close(model(given), by_weights(cases.model(), both)(given))
        one = model(given)
        torch.testing.assert_close(one, by_weights(cases.model(), both[:1])(given))
        with pytest.raises(ZeroDivisionError), switched_off(model, both[1:]):
            _ = 1 / 0
        assert torch.equal(model(given), one)
    assert torch.equal(model(given), whole)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("lookhere_90", [*CLOCKWISE, "undirected"]),
        ("lookhere_180", [*CLOCKWISE, "undirected"]),
        ("alibi_2d", ["undirected"]),
        ("rope_axial+learned_1d", ["undirected"]),
        ("lookhere_90+rpe_learned", [*CLOCKWISE, "undirected"]),
    ],
)
def test_directions(encoding, expected):
    model = cases.model(encoding, heads=12)
    found = directions(model)
    assert list(found) == expected
    every = [(layer, head) for layer in range(2) for head in range(12)]
    assert sorted(head for heads in found.values() for head in heads) == every
    if expected != ["undirected"]:
        assert [len(heads) for heads in found.values()] == [2] * 8 + [8]


@pytest.mark.parametrize("encoding", ["lookhere_90", "lookhere_180", "lookhere_45"])
def test_a_direction_is_where_the_head_sees(encoding):
    """The mean displacement of what a head sees points there."""
    one = create_encoding(encoding, depth=1, heads=12, dim=48)
    bias = one.bias_matrix((9, 9), num_prefix_tokens=0)[:, 40].reshape(12, 9, 9)
    y, x = torch.meshgrid(torch.arange(-4, 5), torch.arange(-4, 5), indexing="ij")
    for name, heads in directions(cases.model(encoding, heads=12)).items():
        for head in (head for layer, head in heads if layer == 0):
            seen = bias[head] > -1e30
            dy, dx = y[seen].float().mean(), x[seen].float().mean()
            words = {"up": dy < -1e-3, "down": dy > 1e-3, "left": dx < -1e-3, "right": dx > 1e-3}
            named = set() if name == "undirected" else set(name.split("-"))
            assert {word for word, there in words.items() if there} == named, (name, dy, dx)


@torch.no_grad()
def written_out(model, given, heads, labels=None):
    """Of images one after the other: each a pass of the whole model and one of a model with other weights."""
    without = by_weights(copy.deepcopy(model), heads)
    found = {"loss": [], "top1": [], "divergence": [], "changed": []}
    for number, image in enumerate(cases.alone(model, given)):
        rows, layout = image
        p, q = (one(rows, layout=layout)[0].softmax(-1) for one in (model, without))
        found["divergence"].append(float((p * (p / q).log()).sum()))
        found["changed"].append(float(p.argmax() != q.argmax()))
        if labels is not None:
            label = int(labels[number])
            found["loss"].append(float(p[label].log() - q[label].log()))
            found["top1"].append(float(q.argmax() == label) - float(p.argmax() == label))
    return found


@cases.every
@pytest.mark.parametrize("options", [{}, {"num_registers": 3, "pool": "attention", "encoding": "rope_axial"}], ids=str)
def test_what_heads_cost(shown, options):
    model = cases.model(**options)
    given = cases.SHOWN[shown](model)
    found = knock_out(model, given, of=["heads"])
    assert set(found.arrays[found.sizes[0]]) == {"divergence", "changed"}
    for layer in range(2):
        for head in range(4):
            expected = written_out(model, given, [(layer, head)])
            for name in ("divergence", "changed"):
                np.testing.assert_allclose(found[name][:, layer, head], expected[name], atol=1e-5)
    assert found["divergence"].std() > 1e-3


@pytest.mark.parametrize("called", ["labels", "label"])
def test_with_labels(called):
    model = cases.model()
    shown = torch.stack(cases.images(*[(3, 5)] * 6))
    labels = model(shown).argmax(-1)
    labels[::2] = (labels[::2] + 1) % 5
    given = {
        (12, 20): [
            cases.batch(model, part, **{called: some})
            for part, some in ((shown[:4], labels[:4]), (shown[4:], labels[4:]))
        ]
    }
    found = knock_out(model, given)
    assert set(found.arrays[12, 20]) == set(found.quantities)
    for layer in range(2):
        for head in range(4):
            for name, expected in written_out(model, shown, [(layer, head)], labels).items():
                np.testing.assert_allclose(found[name][:, layer, head], expected, atol=1e-5)
    for place, heads in enumerate(directions(model).values()):
        for name, expected in written_out(model, shown, heads, labels).items():
            np.testing.assert_allclose(found[f"{name}_of_direction"][:, place], expected, atol=1e-5)
    answers = model(shown).log_softmax(-1)
    np.testing.assert_allclose(found["whole_loss"], -answers[range(6), labels].detach().numpy(), atol=1e-5)
    np.testing.assert_array_equal(found["whole_top1"], (answers.argmax(-1) == labels).double().numpy())
    assert 0 < found["whole_top1"].mean() < 1
    assert abs(found["top1"]).max() == 1
