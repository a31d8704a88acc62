"""The parts that CLIP, EVA, BEiT, DINOv3 and Perception Encoder are made of: each does what its formula says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.encodings import create_encoding
from sightline.models import VisionTransformer, create_model
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

SMALL: dict[str, Any] = {"num_classes": 5, "dim": 48, "depth": 2, "image_size": 16, "heads": 6, "encoding": "none"}
# A CLS token and registers, so that what a part does with prefix tokens shows too.
PREFIX: dict[str, Any] = {"num_registers": 2, "class_token": True}
PARTS: list[dict[str, Any]] = [
    {"pool": "mean", "pool_prefix": True},
    {"pool": "attention", "pool_prefix": True},
    {"pool": "attention", "pool_heads": 3},
    {"pool": "attention", "pool_mlp_ratio": 1.5},
    {"patch_bias": False},
    {"qkv_bias": "qv"},
    {"qkv_bias": False},
    {"attn_norm": True},
    {"mlp_norm": True},
    {"mlp": "swiglu", "mlp_ratio": 2.5},
    {"mlp": "swiglu", "mlp_norm": True},
    {"norm": "rms"},
    {"norm": "rms", "qk_norm": True, "attn_norm": True, "mlp_norm": True, "norm_pre": True, "pool": "attention"},
    {"norm_pre": True},
    {"gelu": "quick"},
    {"gelu": "quick", "pool": "attention"},
    {"final_norm": "none"},
    {"final_norm": "none", "pool": "attention"},
    {"final_norm": "both"},
    {"norm": "layer_no_bias"},
    {"norm": "layer_no_bias", "qk_norm": True, "attn_norm": True, "mlp_norm": True, "norm_pre": True},
    {"qk_norm": "heads"},
    {"patch_norm": True},
    {"patch_norm": True, "norm": "rms", "patch_bias": False},
    {"block_bias": "mlp"},
    {"block_bias": False, "mlp": "swiglu"},
    {"block_bias": "mlp", "pool": "attention"},
    {"block_bias": False, "pool": "attention"},
    {"block_bias": False, "pool": "query"},
    {"pool": "query", "pool_heads": 3},
    {"pool": "query", "pool_prefix": True, "qk_norm": True},
    {"pool": "query", "qk_norm": "heads", "pool_heads": 2},
    {"head_dim": 12},
    {"head_dim": 12, "qkv_bias": "qv", "attn_norm": True, "qk_norm": True, "pool": "attention", "pool_heads": 5},
    {"head_dim": 4, "qk_norm": "heads", "pool": "query", "heads": 5},
    {"head_bias": False},
    {"head_bias": False, "head": "mlp"},
]


def made(**options: Any) -> VisionTransformer:
    return randomise_parameters(create_model("vit_micro_patch4", **{**SMALL, **PREFIX, **options})).eval()


def norm(x: Tensor, part: Any, kind: str) -> Tensor:
    if kind != "rms":
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * part.weight
    return x + part.bias if kind == "layer" else x


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, part: Any = None, config: Any = None) -> Tensor:
    """[images, queries, dim] from a loop over the heads; `part` has the norms of q and k, where there are any."""
    width = q.shape[-1] // heads
    out = []
    for head in range(heads):
        mine = slice(head * width, (head + 1) * width)
        own_q, own_k, scale = q[..., mine], k[..., mine], 1 / math.sqrt(width)
        if part is not None and config.qk_norm is True:
            own_q, own_k = norm(own_q, part.q_norm, config.norm), norm(own_k, part.k_norm, config.norm)
        elif part is not None and config.qk_norm == "heads":
            own_q, own_k = (
                one / one.square().mean(-1, keepdim=True).sqrt() * factors.gamma[mine]
                for one, factors in ((own_q, part.q_norm), (own_k, part.k_norm))
            )
            scale = 1.0
        scores = own_q @ own_k.transpose(-1, -2) * scale
        out.append(scores.softmax(-1) @ v[..., mine])
    return torch.cat(out, dim=-1)


def mlp(x: Tensor, part: Any, config: Any, *, gated: bool, normed: bool) -> Tensor:
    x = part.fc1(x)
    if gated:
        width = x.shape[-1] // 2
        gate, value = x[..., :width], x[..., width:]
        x = gate / (1 + torch.exp(-gate)) * value
    elif config.gelu == "quick":
        x = x / (1 + torch.exp(-1.702 * x))
    else:
        x = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    return part.fc2(norm(x, part.norm, config.norm) if normed else x)


def reference(model: VisionTransformer, images: Tensor) -> Tensor:
    """The whole model written out, without positions."""
    c, dim = model.config, model.config.dim
    if c.patch_norm:
        flat = norm(F.unfold(images, c.patch_size, stride=c.patch_size).mT, model.patch_embed.norm_input, c.norm)
        embedded = norm(model.patch_embed.proj(flat), model.patch_embed.norm, c.norm)
    else:
        kernel = model.patch_embed.proj.weight.reshape(dim, 3, c.patch_size, c.patch_size)
        bias = model.patch_embed.proj.bias if c.patch_bias else None
        embedded = F.conv2d(images, kernel, bias, stride=c.patch_size).flatten(2).transpose(1, 2)
    prefix = torch.cat((model.cls_token, model.reg_token), dim=1).expand(len(images), -1, -1)
    x = torch.cat((prefix, embedded), dim=1)
    if c.norm_pre:
        x = norm(x, model.blocks[0].norm_pre, c.norm)
    for block in model.blocks:
        a = block.attn
        weights = a.qkv.weight.chunk(3)
        biases = (a.q_bias, 0, a.v_bias) if c.qkv_bias == "qv" else (0, 0, 0)
        if c.qkv_bias is True:
            biases = a.qkv.bias.chunk(3)
        y = norm(x, block.norm1, c.norm)
        q, k, v = (y @ weight.T + bias for weight, bias in zip(weights, biases, strict=True))
        y = attention(q, k, v, c.heads, a, c)
        x = x + a.proj(norm(y, a.norm, c.norm) if c.attn_norm else y)
        y = norm(x, block.norm2, c.norm)
        x = x + mlp(y, block.mlp, c, gated=c.mlp == "swiglu", normed=c.mlp_norm)
    if c.final_norm in ("before_pool", "both"):
        x = norm(x, model.norm, c.norm)
    pooled = x if c.pool_prefix else x[:, 3:]
    if c.pool == "cls":
        pooled = x[:, 0]
    elif c.pool == "mean":
        pooled = pooled.mean(1)
    else:
        part = model.attn_pool
        k, v = part.kv(pooled).chunk(2, dim=-1)
        alone = c.pool == "query"
        probe = part.q(norm(part.latent, part.norm, c.norm) if alone else part.latent).expand(len(images), -1, -1)
        pooled = part.proj(attention(probe, k, v, c.pool_heads or c.heads, part if alone else None, c))[:, 0]
        if alone:
            pooled = pooled + part.latent[0]
        else:
            pooled = pooled + mlp(norm(pooled, part.norm, c.norm), part.mlp, c, gated=False, normed=False)
    return model.head(norm(pooled, model.fc_norm, c.norm) if c.final_norm == "both" else pooled)


@pytest.mark.parametrize("options", PARTS, ids=str)
@torch.no_grad()
def test_the_formula(options: dict[str, Any]) -> None:
    model = made(**options)
    images = torch.randn(3, 3, 8, 20)
    logits = model(images)
    assert logits.std() > 0.1
    assert (logits - reference(model, images)).abs().max() < 2e-5


@pytest.mark.parametrize("options", PARTS, ids=str)
def test_packed_is_single_and_every_parameter_learns(options: dict[str, Any]) -> None:
    model = made(**options).train()
    images = [torch.randn(3, 8, 12), torch.randn(3, 20, 4), torch.randn(3, 4, 4)]
    logits = model(images)
    for number, image in enumerate(images):
        assert (model(image[None])[0] - logits[number]).abs().max() < 2e-5
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A softmax does not see what is added to all keys alike: of that no more than rounding is learned.
        least = 0.0 if name.endswith(("k_norm.bias", "k_bias")) else 1e-7
        assert parameter.grad.abs().max() > least, name


# The options of rope_axial, at head_dim 8: two frequencies, 1 and theta^(-1/2).
ROPE: list[tuple[str, dict[str, Any], Any]] = [
    ("rope_axial", {}, lambda i, side, train: i),
    ("rope_axial", {"offset": 1.0}, lambda i, side, train: i + 1),
    ("rope_axial", {"offset": -2.5, "axis_order": "yx"}, lambda i, side, train: i - 2.5),
    ("rope_axial", {"coordinates": "squeezed"}, lambda i, side, train: i / side * train),
    ("rope_axial", {"coordinates": "squeezed", "offset": 1.0}, lambda i, side, train: (i + 1) / side * train),
    ("rope_axial", {"coordinates": "squeezed", "reference": (16, 16)}, lambda i, side, train: i / side * 16),
    ("rope_axial", {"coordinates": "centred"}, lambda i, side, train: 2 * math.pi * (2 * (i + 0.5) / side - 1)),
    ("rope_dinov3", {}, lambda i, side, train: 2 * math.pi * (2 * (i + 0.5) / side - 1)),
]


@pytest.mark.parametrize(("name", "options", "place"), ROPE)
def test_angles(name: str, options: dict[str, Any], place: Any) -> None:
    rows, cols = 3, 5
    encoding = create_encoding(name, depth=2, heads=4, dim=32, train_grid=(4, 6), **options)
    found = encoding.rotation_angles((rows, cols))
    assert found.shape == (1, rows * cols, 4)
    order = encoding.config.axis_order
    for y in range(rows):
        for x in range(cols):
            both = {"y": place(y, rows, 4), "x": place(x, cols, 6)}
            expected = [both[axis] * frequency for axis in order for frequency in (1.0, 0.1)]
            assert found[0, y * cols + x].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["rope_axial", "rope_dinov3"])
@torch.no_grad()
def test_pairing(name: str) -> None:
    """`halves` turns channels k and k + head_dim / 2, by DINOv3's x cos + rotate_half(x) sin; `adjacent` 2k, 2k + 1."""
    from sightline.attention import rotate

    encoding = create_encoding(name, depth=1, heads=4, dim=32, train_grid=(3, 5), num_prefix_tokens=2)
    layout = TokenLayout.uniform((3, 5), 1, num_prefix_tokens=2)
    x = torch.randn(1, 4, 17, 8)
    turned = rotate(x, encoding.rotation(0, layout))
    assert torch.equal(turned[:, :, :2], x[:, :, :2])
    angles = encoding.rotation_angles((3, 5))
    patches = x[:, :, 2:]
    if name == "rope_dinov3":
        wide = torch.cat((angles, angles), dim=-1)
        half = torch.cat((-patches[..., 4:], patches[..., :4]), dim=-1)
        expected = patches * wide.cos() + half * wide.sin()
    else:
        pairs = torch.view_as_complex(patches.unflatten(-1, (4, 2)).contiguous())
        expected = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    assert (turned[:, :, 2:] - expected).abs().max() < 1e-5


@torch.no_grad()
def test_an_offset_shows_beside_prefix_tokens_alone() -> None:
    """Scores between patches depend on displacements; CLS and registers are not turned."""
    images = torch.randn(2, 3, 8, 20)
    for prefix in (True, False):
        parts = PREFIX if prefix else {"num_registers": 0, "class_token": False}
        plain, moved = (
            made(pool="mean", **{**parts, "encoding": "rope_axial", "heads": 4, "encoding_options": {"offset": offset}})
            for offset in (0.0, 1.0)
        )
        difference = (plain(images) - moved(images)).abs().max()
        assert difference > 1e-3 if prefix else difference < 2e-5
