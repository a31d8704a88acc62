"""What is made of a layout alone is made once for all layers; what hangs on a weight or a knob never goes stale."""

from __future__ import annotations

import pytest
import torch

from sightline.attention.pattern import Pattern
from sightline.encodings.rotation.rope_axial import RopeAxial
from sightline.encodings.rotation.rope_mixed import RopeMixed
from sightline.models import VisionTransformer, create_model
from sightline.tokens.cache import CACHES
from sightline.tokens.layout import TokenLayout

GRIDS = [(3, 5), (2, 2), (3, 5), (4, 3)]


def model(encoding: str, **options) -> VisionTransformer:
    torch.manual_seed(0)
    made = create_model(
        "vit_micro_patch4", encoding=encoding, encoding_options=options, num_classes=3, depth=4, dim=48, heads=3
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.2)
    return made


def patches(layout: TokenLayout) -> torch.Tensor:
    return torch.randn(1, sum(one.patches for one in layout.segments), 48)


def test_what_is_made_under_inference_mode_can_train_and_has_no_history():
    layout = TokenLayout.packed(GRIDS)
    weight = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        made = layout.cached("a", lambda: torch.ones(2))
    assert not made.is_inference()
    assert not layout.cached("b", lambda: 2 * weight).requires_grad


@pytest.mark.parametrize(
    ("cls", "name", "calls"),
    [(RopeAxial, "rope_axial", 1), (RopeMixed, "rope_mixed", 4), (RopeAxial, "rope_dinov3", 4)],
)
def test_angles_are_made_once_for_all_layers_and_without_a_loop_over_images(cls, name, calls, monkeypatch):
    """Learned ones in each layer, by one call; those that hang on the image's grid by one an image, for all layers."""
    seen, real = [], cls.angles
    monkeypatch.setattr(cls, "angles", lambda *given: seen.append(given[3]) or real(*given))
    layout = TokenLayout.packed(GRIDS)
    model(name)(patches(layout), layout=layout)
    assert len(seen) == calls


@pytest.mark.parametrize("name", ["rope_axial", "rope_mixed", "lookhere_90", "alibi_2d"])
def test_a_knob_that_is_turned_counts_on_the_same_layout(name):
    layout, vit = TokenLayout.packed(GRIDS), model(name).eval()
    given = patches(layout)
    knob = vit.encoding.knob
    assert knob is not None
    with torch.inference_mode():
        before = vit(given, layout=layout)
        vit.encoding.set_knob(2 * knob.value)
        after = vit(given, layout=layout)
        assert not torch.allclose(before, after)
        assert torch.equal(after, vit(given, layout=TokenLayout.packed(GRIDS)))
        vit.encoding.set_knob(knob.value)
        assert torch.equal(before, vit(given, layout=layout))


@pytest.mark.parametrize("name", ["rope_mixed", "rpe_learned", "learned_1d", "factorized", "fourier", "rope_axial"])
def test_two_steps_on_one_layout_are_two_steps_on_two(name):
    """What is learned is made anew in each forward pass: neither its graph nor its values outlive a step."""
    found = []
    for shared in (True, False):
        vit = model(name).train()
        layout = TokenLayout.packed(GRIDS)
        optimizer = torch.optim.SGD(vit.parameters(), lr=0.1)
        torch.manual_seed(1)
        for _ in range(3):
            layout = layout if shared else TokenLayout.packed(GRIDS)
            vit(patches(layout), layout=layout).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append([parameter.detach().clone() for parameter in vit.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_bias_of_a_pack_is_one_look_up_a_layer(monkeypatch):
    rendered, real = [], Pattern.bias
    monkeypatch.setattr(Pattern, "bias", lambda *given: rendered.append(1) or real(*given))
    layout = TokenLayout.packed(GRIDS)
    vit = model("lookhere_90").train()
    loss = vit(patches(layout), layout=layout).sum()
    assert not rendered
    loss.backward()
    assert not rendered
    # What stands outside a view may hang on the grid: each grid has a bias of its own, which is kept.
    CACHES["directed biases"].clear()
    for _ in range(2):
        model("lookhere_90", fill="max")(patches(layout), layout=layout)
    assert len(rendered) == 4 * len(set(GRIDS))
