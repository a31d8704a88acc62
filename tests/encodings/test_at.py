"""Positions at the input, at every layer, and at every layer shared (ViT appendix D.4, table 8)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline import load_model, save_model
from sightline.encodings import create_encoding
from sightline.encodings.create import encoding_options
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import TRAIN, build, images
from tests.contract.randomise import randomise_parameters

NAMES = ["learned_1d", "learned_2d", "learned_xy", "factorized", "factorized_fractional", "sincos_2d", "fourier"]
SHAPE = {"depth": 3, "heads": 2, "dim": 16, "train_grid": (3, 5), "num_prefix_tokens": 1}


def made(name: str, at: str, **options):
    torch.manual_seed(0)
    return randomise_parameters(create_encoding(name, **SHAPE, at=at, **options))


@pytest.mark.parametrize("grid", [(3, 5), (7, 2)])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_where_it_is_added(name: str, grid: tuple[int, int]) -> None:
    layout = TokenLayout.uniform(grid, 1)
    once, shared, every = (made(name, at) for at in ("input", "shared", "every"))
    shared.load_state_dict(once.state_dict())
    first = once.added(0, layout)
    assert once.added(1, layout) is None
    for layer in range(3):
        assert torch.equal(shared.added(layer, layout), first)
    each = [every.added(layer, layout) for layer in range(3)]
    assert all(one.shape == first.shape for one in each)
    learned = bool(list(once.parameters()))
    assert len(list(every.parameters())) == 3 * len(list(once.parameters()))
    for layer, one in enumerate(each[1:], 1):
        assert torch.equal(one, each[0]) != learned, "a table of its own"
        alone = made(name, "input")
        alone.load_state_dict(every.later[layer - 1].state_dict())
        assert torch.equal(alone.added(0, layout), one), "resized as at the input"


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_the_names_that_they_had(name: str) -> None:
    once, every = made(name, "input"), made(name, "every")
    assert encoding_options(made(name, "shared"))["at"] == "shared"
    assert set(made(name, "shared").state_dict()) == set(once.state_dict())
    for key, one in every.state_dict().items():
        assert key in once.state_dict() or key.startswith("later.")
        assert one.shape == once.state_dict()[key.split(".", 2)[-1] if key.startswith("later.") else key].shape
    assert every.no_weight_decay() == {key for key, _ in every.named_parameters()}


@pytest.mark.parametrize("at", ["input", "every", "shared"])
def test_a_block_adds_it_to_what_it_gets(at: str) -> None:
    """As the definition says, layer by layer; with gradients for every table."""
    model = build("learned_1d", depth=3, encoding_options={"at": at})
    rows, layout = model.prepare(images(TRAIN))
    x = model.embed(rows, layout)
    for layer, block in enumerate(model.blocks):
        table = model.encoding if at != "every" or layer == 0 else model.encoding.later[layer - 1]
        if layer == 0 or at != "input":
            x = x + torch.cat((table.prefix, table.table))
        inputs = model.blocks.layer_inputs(layer, x, layout, model.encoding.hooks)
        x = x + block.attn(block.norm1(x), inputs)
        x = x + block.mlp(block.norm2(x))
    logits = model.head(model.pool(model.norm(x), layout))
    assert (logits - model(images(TRAIN))).abs().max() < 1e-5
    logits.sum().backward()
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in model.encoding.parameters())


@pytest.mark.parametrize("name", ["learned_1d_every", "learned_xy_shared", "rope_axial+learned_xy_every"])
@torch.no_grad()
def test_a_model_of_them(name: str, tmp_path) -> None:
    model = build(name)
    given: list[Tensor] = [images((3, 5))[0], images((7, 2))[0]]
    alone = torch.cat([model(one[None]) for one in given])
    assert (model(given) - alone).abs().max() < 1e-5
    save_model(model, tmp_path / "m")
    assert torch.equal(load_model(tmp_path / "m")(given), model(given))
