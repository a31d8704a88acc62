"""Axial attention against scenic's xvit and lucidrains' axial-attention (golden_families/)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention import attend
from sightline.convert import export_weights, import_weights
from sightline.models import Model
from sightline.models.architectures.axial import lines_of
from sightline.tokens.layout import TokenLayout
from tests.parity.family_files import assert_close, files, read, weights

PATCH = 4


def arguments(given: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Those of the class `XViT` with this encoder."""
    return {
        "num_outputs": 3, "mlp_dim": given["mlp_dim"], "num_layers": given["num_layers"],
        "attention_configs": {"num_heads": given["num_heads"]}, "attention_fn": given["attention_fn"],
        "patches": {"size": [PATCH, PATCH]}, "hidden_size": given["dim"],
        "transformer_encoder_configs": {"type": given["type"]}, **others,
    }  # fmt: skip


def whole(tensors: dict[str, Tensor], given: dict[str, Any]) -> dict[str, Tensor]:
    """The encoder's weights as those of a model, whose stem and head are anything."""
    dim, make = given["dim"], torch.Generator().manual_seed(0)
    drawn = partial(torch.randn, generator=make)
    return {f"Transformer/{name}": tensor for name, tensor in weights(tensors).items()} | {
        "embedding/kernel": drawn(PATCH, PATCH, 3, dim) / 7, "embedding/bias": drawn(dim),
        "output_projection/kernel": drawn(dim, 3), "output_projection/bias": drawn(3),
    }  # fmt: skip


def through(model: Model, tokens: Tensor) -> dict[str, Tensor]:
    """What the encoder gives of tokens [batch, rows, cols, dim], by the names of the file."""
    batch, rows, cols, dim = tokens.shape
    layout = TokenLayout.uniform((rows, cols), batch, num_prefix_tokens=0)
    added = model.encoding.added(0, layout)
    assert added is not None
    x = tokens.flatten(1, 2)
    found = {"posembed": x + added}
    for layer in range(len(model.blocks)):
        x = model.blocks.layer(layer, x, layout, model.encoding)
        found[f"encoder_block_{'col' if layer % 2 else 'row'}_{layer // 2}"] = x
    found["encoded"] = model.norm(x)
    return {name: one.reshape(batch, rows, cols, dim) for name, one in found.items()}


@pytest.mark.parametrize("file", files("axial_scenic"))
@torch.no_grad()
def test_scenic(file: str) -> None:
    """Every block, the 'row' one along axis 1, and the norm that its code makes and does not call."""
    tensors, given = read(file)
    model = import_weights("scenic", whole(tensors, given), arguments(given))
    found = through(model, tensors["in.tokens_bhwc"])
    expected = {name.removeprefix("out."): one for name, one in tensors.items() if name.startswith("out.")}
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        assert_close(found[name], one)
    for name, one in tensors.items():
        if name.startswith("officialbug."):
            assert (found[name.removeprefix("officialbug.")] - one).abs().max() > 1e-2


@pytest.mark.parametrize("file", files("axial_scenic"))
@pytest.mark.parametrize("classifier", ["gap", "0"])
@torch.no_grad()
def test_scenic_there_and_back(file: str, classifier: str) -> None:
    tensors, given = read(file)
    state = whole(tensors, given)
    model = import_weights("scenic", state, arguments(given, classifier=classifier))
    back, said = export_weights(model, "scenic")
    assert back.keys() == state.keys()
    for name, one in state.items():
        assert torch.equal(back[name], one), name
    again = import_weights("scenic", back, said)
    assert again.config.replace(origin=None) == model.config.replace(origin=None)
    rows, cols = given["grid"]
    image = torch.randn(2, 3, PATCH * rows, PATCH * cols)
    assert torch.equal(again(image), model(image))
    # The head's token is (0, 0), or all.
    x = model.encode(*model.prepare(image))
    x = x.mean(1) if classifier == "gap" else x[:, 0]
    assert torch.allclose(model(image), model.head(x), atol=1e-6)


@pytest.mark.parametrize("file", files("axial_scenic"))
@torch.no_grad()
def test_the_name_of_scenics_row_block_is_a_trap(file: str) -> None:
    """Rows first is another model."""
    tensors, given = read(file)
    model = import_weights("scenic", whole(tensors, given), arguments(given))
    model.blocks.first = 1 - model.blocks.first
    found = through(model, tensors["in.tokens_bhwc"])
    assert (found["encoder_block_row_0"] - tensors["out.encoder_block_row_0"]).abs().max() > 1e-2


def attention(x: Tensor, state: dict[str, Tensor], heads: int, layout: TokenLayout, axis: int) -> Tensor:
    """lucidrains' `SelfAttention` along one axis of [batch, tokens, dim], by our layouts: 0 is the height."""
    # Along the height means inside columns.
    along = lines_of(layout, 1 - axis)
    x = along.partition(x)
    q = F.linear(x, state["to_q.weight"])
    k, v = F.linear(x, state["to_kv.weight"]).chunk(2, dim=-1)
    q, k, v = (one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (q, k, v))
    out = attend(q, k, v, None, along.layout).transpose(1, 2).flatten(2)
    return along.merge(F.linear(out, state["to_out.weight"], state["to_out.bias"]))


@pytest.mark.parametrize("file", files("axial_lucidrains"))
@torch.no_grad()
def test_lucidrains(file: str) -> None:
    """Attention alone: both axes summed, one after the other without a residual, and the image transformer."""
    tensors, given = read(file)
    rows, cols = given["grid"]
    of = partial(attention, heads=given["heads"])
    for kind in [kind for kind in ("sum", "sequential") if f"in.{kind}" in tensors]:
        state = [weights(tensors, f"{kind}.axial_attentions.{axis}.fn.") for axis in (0, 1)]
        x = tensors[f"in.{kind}"]
        layout = TokenLayout.uniform((rows, cols), x.shape[0], num_prefix_tokens=0)
        flat = x.flatten(1, 2)
        if kind == "sum":
            found = sum(of(flat, one, layout=layout, axis=axis) for axis, one in enumerate(state))
        else:
            found = of(of(flat, state[0], layout=layout, axis=0), state[1], layout=layout, axis=1)
        assert isinstance(found, Tensor)
        assert_close(found.reshape(x.shape), tensors[f"out.{kind}"])
    if "in.transformer" not in tensors:
        return
    x, state = tensors["in.transformer"], weights(tensors, "transformer.")
    layout = TokenLayout.uniform((rows, cols), x.shape[0], num_prefix_tokens=0)
    x = x + sum(one for name, one in state.items() if name.startswith("pos_emb."))
    depth = 1 + max(int(name.split(".")[2]) for name in state if name.startswith("layers.blocks."))
    for layer in range(0, depth, 2):
        for axis in (0, 1):
            part = weights(tensors, f"transformer.layers.blocks.{layer}.{axis}.fn.")
            flat = x.flatten(2).transpose(1, 2)
            normed = F.layer_norm(flat, flat.shape[-1:], part["norm.weight"], part["norm.bias"])
            part = {name.removeprefix("fn."): one for name, one in part.items()}
            x = x + of(normed, part, layout=layout, axis=axis).transpose(1, 2).reshape(x.shape)
        for which in (0, 1):
            x = x + feed_forward(x, weights(tensors, f"transformer.layers.blocks.{layer + 1}.{which}."))
    assert_close(x, tensors["out.transformer"])


def feed_forward(x: Tensor, state: dict[str, Tensor]) -> Tensor:
    """Two 3 x 3 convolutions after a norm of the channels, no part of the paper's block."""
    var, mean = torch.var_mean(x, dim=1, unbiased=False, keepdim=True)
    x = (x - mean) / (var.sqrt() + 1e-5) * state["0.g"] + state["0.b"]
    x = F.leaky_relu(F.conv2d(x, state["1.weight"], state["1.bias"], padding=1))
    return F.conv2d(x, state["3.weight"], state["3.bias"], padding=1)
