"""Cream's DeiT with iRPE: models of its names and shapes there and back bit by bit, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline import load_model, save_model
from sightline.convert import export_weights, import_weights
from sightline.encodings.create import encoding_options
from sightline.errors import InputError

DIM, DEPTH, HEADS, PATCH, SIDE, CLASSES = 24, 2, 3, 4, 16, 5
GIVEN = {
    "img_size": SIDE, "patch_size": PATCH, "embed_dim": DIM, "depth": DEPTH, "num_heads": HEADS,
    "num_classes": CLASSES,
}  # fmt: skip
# The published ones first: deit_*_patch16_224_ctx_product_50_shared_k, _qk and _qkv.
OPTIONS: list[dict[str, Any]] = [
    {"rpe_on": "k"},
    {"rpe_on": "qk"},
    {"rpe_on": "qkv"},
    {"rpe_on": "qkv", "method": "cross", "shared_head": False, "ratio": 20},
    {"rpe_on": "k", "method": "euc", "ratio": 20, "mode": "contextual"},
    {"rpe_on": "k", "method": "quant", "ratio": 33, "qkv_bias": False},
    {"rpe_on": "qk", "mode": "bias", "shared_head": False},
]


def state_of(options: dict[str, Any]) -> dict[str, Tensor]:
    """A state dict as `rpe_vision_transformer.VisionTransformer` has it, of random values."""
    generator = torch.Generator().manual_seed(0)
    options = {"method": "product", "mode": "ctx", "shared_head": True, "ratio": 1.9, "qkv_bias": True, **options}
    cells, head_dim = (SIDE // PATCH) ** 2, DIM // HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, DIM), "pos_embed": (1, cells + 1, DIM),
        "patch_embed.proj.weight": (DIM, 3, PATCH, PATCH), "patch_embed.proj.bias": (DIM,),
        "norm.weight": (DIM,), "norm.bias": (DIM,), "head.weight": (CLASSES, DIM), "head.bias": (CLASSES,),
    }  # fmt: skip
    one = 2 * int(2 * options["ratio"]) + 1
    buckets = (one * one if options["method"] == "product" else one) + 1
    heads = 1 if options["shared_head"] else HEADS
    for layer in range(DEPTH):
        block = f"blocks.{layer}."
        for name, rows, cols in (
            ("attn.qkv", 3 * DIM, DIM), ("attn.proj", DIM, DIM), ("mlp.fc1", 4 * DIM, DIM), ("mlp.fc2", DIM, 4 * DIM),
        ):  # fmt: skip
            shapes[f"{block}{name}.weight"] = rows, cols
            if name != "attn.qkv" or options["qkv_bias"]:
                shapes[f"{block}{name}.bias"] = (rows,)
        for name in ("norm1", "norm2"):
            shapes |= {f"{block}{name}.weight": (DIM,), f"{block}{name}.bias": (DIM,)}
        for where in options["rpe_on"]:
            for part in ("rp_rows.", "rp_cols.") if options["method"] == "cross" else ("",):
                name = f"{block}attn.rpe_{where}.{part}lookup_table_"
                if options["mode"] == "bias":
                    shapes[f"{name}bias"] = heads, buckets
                else:
                    inner = (buckets, head_dim) if where == "v" else (head_dim, buckets)
                    shapes[f"{name}weight"] = (heads, *inner)
    return {name: torch.randn(shape, generator=generator) * 0.5 for name, shape in shapes.items()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_there_and_back(options: dict[str, Any], tmp_path) -> None:
    state, given = state_of(options), {**GIVEN, "qkv_bias": True, **options}
    model = import_weights("irpe", state, given)
    assert model.config.norm_eps == 1e-6
    back, arguments = export_weights(model, "irpe")
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())
    again = import_weights("irpe", back, json.loads(json.dumps(arguments)))
    save_model(again, tmp_path / "m")
    read = load_model(tmp_path / "m")
    assert encoding_options(read.encoding) == encoding_options(model.encoding)
    images = torch.randn(2, 3, 12, 20)
    assert torch.equal(read(images), model(images))
    assert model(images).std() > 0.05
    # Every table shows in the answers. (Of the last layer the CLS token is read, all of whose scores k moves alike.)
    for name, tensor in state.items():
        if "lookup_table" in name and name.startswith("blocks.0"):
            other = import_weights("irpe", {**state, name: torch.zeros_like(tensor)}, given)
            assert (other(images) - model(images)).abs().max() > 1e-5, name


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rpe_on": "qk"}, "missing: blocks.0.attn.rpe_q.lookup_table_weight"),
        ({"rpe_on": "kx"}, "rpe_on 'kx': expected some of the letters q, k and v"),
        ({"rpe_on": "kk"}, "rpe_on 'kk'"),
        ({"method": "prod"}, "did you mean 'product'"),
        ({"mode": "context"}, "mode"),
        ({"ratio": 6}, r"lookup_table_weight is \[1, 8, 50\], expected \[1, 8, 626\]"),
        ({"shared_head": False}, r"is \[1, 8, 50\], expected \[3, 8, 50\]"),
        ({"skip": 2}, "skip = 2 cannot be ours"),
        ({"rpe_on": "v", "mode": "bias"}, "a bias is added to scores"),
        ({"dept": 2}, "did you mean 'depth'"),
    ],
)
def test_what_does_not_belong_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        import_weights("irpe", state_of({"rpe_on": "k"}), {**GIVEN, "qkv_bias": True, **given})
    assert "\n" not in str(caught.value)
