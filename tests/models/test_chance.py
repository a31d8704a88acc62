"""What is left to chance in training hangs on the image and the place alone: not on its batch, pack or process."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from sightline.errors import InputError
from sightline.models import create_model
from sightline.models.stochastic import Dropout, DropPath, draw_noise
from sightline.tokens.layout import TokenLayout
from sightline.tokens.rng import image_seed


def dropped(drop, x, layout):
    """By the fourth layer of a model whose other drop is off."""
    both = {DropPath: DropPath(0.0), Dropout: Dropout(0.0)} | {type(drop): drop}
    return drop(x, draw_noise(both[DropPath], both[Dropout], 3, layout, x.dtype), 0)


GRIDS = [(3, 5), (2, 7), (4, 4), (1, 6)]
SMALL = {"num_classes": 5, "dim": 48, "depth": 2, "heads": 4, "image_size": 16}


@pytest.mark.parametrize("kind", [DropPath, Dropout])
def test_an_image_is_drawn_alike_in_a_pack_a_batch_and_alone(kind):
    drop = kind(0.5).train()
    numbers = [image_seed(0, 0, index) for index in range(4)]
    pack = TokenLayout.packed(GRIDS, num_prefix_tokens=1).with_seeds(numbers)
    together = pack.split(dropped(drop, torch.ones(1, pack.slots, 24), pack))
    turned = TokenLayout.packed(GRIDS[::-1], num_prefix_tokens=1).with_seeds(numbers[::-1]).pad_to(60)
    apart = turned.split(dropped(drop, torch.ones(1, turned.slots, 24), turned))[::-1]
    for grid, number, one, other in zip(GRIDS, numbers, together, apart, strict=True):
        alone = TokenLayout.uniform(grid, 2).with_seeds([number, 5])
        assert torch.equal(dropped(drop, torch.ones(2, alone.slots, 24), alone)[:1], one)
        assert torch.equal(one, other)
    assert len({float(value) for one in together for value in one.unique()}) == 2


def test_dropout_knows_patches_that_were_dropped_and_reordered():
    drop, grid = Dropout(0.5).train(), (4, 6)
    whole = TokenLayout.uniform(grid, 1).with_seeds([11])
    full = dropped(drop, torch.ones(1, whole.slots, 16), whole)
    kept = torch.tensor([[2, 3, 11, 20]])
    some = whole.keep(kept)
    assert torch.equal(dropped(drop, torch.ones(1, some.slots, 16), some)[:, 1:], full[:, 1:][:, kept[0]])
    tiled = whole.tiled(type(whole.segments[0].grid)(2, 2))
    assert torch.equal(tiled.to_row_major(dropped(drop, torch.ones(1, tiled.slots, 16), tiled)), full)


def test_dropout_keeps_the_mean_and_evaluates_nothing():
    drop, layout = Dropout(0.25).train(), TokenLayout.uniform((8, 9), 16).with_seeds(list(range(16)))
    ones = torch.ones(16, layout.slots, 32)
    out = dropped(drop, ones, layout)
    assert sorted(out.unique().tolist()) == pytest.approx([0, 1 / 0.75])
    assert float(out.mean()) == pytest.approx(1, abs=0.02)
    noise = [draw_noise(DropPath(0.5).train(), drop, layer, layout, ones.dtype) for layer in (0, 1)]
    places = [drop(ones, noise[layer], place) for layer in (0, 1) for place in range(4)]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(places, 2))
    assert len(torch.stack([one.drop_path for one in noise]).flatten(0, 1).unique(dim=0)) == 4
    assert dropped(drop.eval(), ones, layout) is ones
    with pytest.raises(InputError, match="seeds: 3 for 16 images"):
        layout.with_seeds([1, 2, 3])


@pytest.mark.parametrize("encoding", ["learned_1d", "rope_axial"])
def test_dropout_stands_where_vit_has_it(encoding):
    """After the positions, attention's projection, the hidden layer and the output of the MLP (ViT appendix B.1)."""
    model = create_model("vit_micro_patch4", dropout=0.5, encoding=encoding, **SMALL).train()
    places = []
    for block in model.blocks:
        block.dropout.forward = lambda x, noise, place: places.append((place, x.shape[-1])) or x
    model(torch.randn(2, 3, 16, 16))
    assert places == [(0, 48), (1, 48), (2, 192), (3, 48), (1, 48), (2, 192), (3, 48)]


def test_a_model_trains_alike_packed_and_alone():
    """Drop path and dropout together: the gradient of a pack is the sum of those of its images."""
    torch.manual_seed(0)
    model = create_model("vit_micro_patch4", dropout=0.2, drop_path=0.3, encoding="lookhere_90", **SMALL).train()
    nn.init.normal_(model.head.weight)
    sizes, numbers = [(12, 20), (16, 16), (8, 24)], [21, 22, 23]
    images = [torch.randn(3, *size) for size in sizes]

    def gradient(some, given):
        rows, layout = model.prepare(some)
        model.zero_grad()
        model(rows, layout.with_seeds(given)).square().sum().backward()
        return torch.cat([one.grad.flatten() for one in model.parameters()])

    together = gradient(images, numbers)
    apart = sum(gradient([image], [number]) for image, number in zip(images, numbers, strict=True))
    assert float((together - apart).norm()) < 1e-5 * float(together.norm())
    assert not torch.allclose(together, gradient(images, numbers[::-1]), rtol=1e-2, atol=1e-2)
