"""The parts that CLIP, EVA, BEiT, DINOv3 and Perception Encoder are made of: each does what its formula says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.encodings import create_encoding
from sightline.errors import InputError
from sightline.hub.load import load_model, save_model
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
@torch.no_grad()
def test_it_matters(options: dict[str, Any]) -> None:
    """The same weights, where both have them, without the part give something else."""
    model = made(**options)
    plain = made(**{key: value for key, value in options.items() if key == "pool"})
    there = plain.state_dict()
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if there.get(name, value).shape == value.shape},
        strict=False,
    )
    images = torch.randn(3, 3, 8, 20)
    assert (model(images) - plain(images)).abs().max() > 1e-2


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


@pytest.mark.parametrize("options", PARTS, ids=str)
@torch.no_grad()
def test_saved_and_loaded(options: dict[str, Any], tmp_path) -> None:
    model = made(**options)
    save_model(model, tmp_path / "model")
    other, images = load_model(tmp_path / "model"), torch.randn(2, 3, 8, 12)
    assert other.config == model.config.replace(encoding_options=other.config.encoding_options)
    assert torch.equal(other(images), model(images))


def test_which_parameters_there_are() -> None:
    names = {name for name, _ in made(qkv_bias="qv", patch_bias=False, norm="rms", norm_pre=True).named_parameters()}
    assert {"blocks.0.attn.q_bias", "blocks.1.attn.v_bias", "blocks.0.norm_pre.weight"} <= names
    for absent in ("blocks.0.attn.qkv.bias", "blocks.0.attn.k_bias", "patch_embed.proj.bias", "norm.bias"):
        assert absent not in names
    assert not any(name.startswith("blocks.1.norm_pre") for name in names)
    gated = made(mlp="swiglu", mlp_norm=True, mlp_ratio=2.5, attn_norm=True)
    assert gated.blocks[0].mlp.fc1.weight.shape == (240, 48)
    assert gated.blocks[0].mlp.norm.weight.shape == (120,)
    assert gated.blocks[0].attn.norm.weight.shape == (48,)
    probe = made(pool="attention", pool_mlp_ratio=1.5, pool_heads=3, mlp="swiglu").attn_pool
    assert (probe.num_heads, probe.mlp.fc1.weight.shape) == (3, (72, 48))
    assert not list(made(final_norm="none").norm.parameters())


@pytest.mark.parametrize("pool", ["attention", "query"])
@pytest.mark.parametrize("block_bias", [True, "mlp", False])
def test_which_biases_there_are(block_bias: bool | str, pool: str) -> None:
    model = made(
        pool=pool, block_bias=block_bias, norm="layer_no_bias", qkv_bias=False, patch_bias=False, head_bias=False,
        qk_norm=True, patch_norm=True, final_norm="both", mlp_norm=True, attn_norm=True, norm_pre=True,
    )  # fmt: skip
    biases = {name.removesuffix(".bias") for name, _ in model.named_parameters() if name.endswith("bias")}
    mlps = {f"blocks.{layer}.mlp.{one}" for layer in range(2) for one in ("fc1", "fc2")}
    mlps |= {"attn_pool.mlp.fc1", "attn_pool.mlp.fc2"} if pool == "attention" else set()
    rest = {"blocks.0.attn.proj", "blocks.1.attn.proj", "attn_pool.q", "attn_pool.kv", "attn_pool.proj"}
    assert biases == {True: mlps | rest, "mlp": mlps, False: set()}[block_bias]
    # Initialised all the same, and as far as the head goes without a value to begin with.
    fresh = create_model("vit_micro_patch4", **SMALL, block_bias=block_bias, head_bias=False, head="mlp")
    assert fresh.head.fc2.bias is None
    assert not fresh.head.fc1.bias.any()


def test_factors_of_heads_are_not_decayed() -> None:
    model = made(qk_norm="heads", pool="query")
    factors = {name: value for name, value in model.named_parameters() if name.endswith("gamma")}
    assert len(factors) == 6
    assert all(value.shape == (48,) for value in factors.values())


def test_the_mask_token_is_only_kept(tmp_path) -> None:
    plain, model = made(), made(mask_token=True)
    model.mask_token.fill_(7.0)
    images = torch.randn(1, 3, 8, 12)
    assert torch.equal(model(images), plain(images))
    assert set(model.state_dict()) - set(plain.state_dict()) == {"mask_token"}
    assert "mask_token" not in dict(model.named_parameters())
    save_model(model, tmp_path / "model")
    assert torch.equal(load_model(tmp_path / "model").mask_token, torch.full((1, 48), 7.0))


def test_origin_is_kept(tmp_path) -> None:
    origin = {"project": "timm", "config": {"model": "vit_tiny", "sizes": [1, 2]}}
    model = made(origin=origin)
    model.reset_classifier(7)
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").config.origin == origin
    assert made().config.origin is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pool_heads": 5}, "dim 48: must be divisible by pool_heads 5"),
        ({"encoding_options": {"head_dim": 8}}, "encoding_options.head_dim: is decided by the model"),
        ({"encoding": "rope_axial", "head_dim": 6}, "head_dim 6 .* must be a multiple of 4"),
        ({"pool": "cls", "class_token": False}, "expected pool 'mean' or 'attention' or 'query'"),
        ({"pool": "query", "pool_heads": 5}, "dim 48: must be divisible by pool_heads 5"),
        ({"encoding": "rope_dinov3+rope_axial"}, "pair channels differently .adjacent, halves"),
    ],
)
def test_values_that_contradict_one_another(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match) as error:
        create_model("vit_micro_patch4", **{**SMALL, "heads": 4, **options})(torch.randn(1, 3, 8, 8))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"pool_prefix": "yes"}, "pool_prefix"),
        ({"pool_heads": 0}, "pool_heads"),
        ({"pool_mlp_ratio": 0}, "pool_mlp_ratio"),
        ({"patch_bias": 1}, "patch_bias"),
        ({"qkv_bias": "q"}, "qkv_bias"),
        ({"head_dim": 0}, "head_dim"),
        ({"qk_norm": "head"}, "qk_norm"),
        ({"head_bias": True}, "head_bias"),
        ({"pool": "map"}, "pool"),
        ({"norm_pre": 0}, "norm_pre"),
        ({"mlp": "swigl"}, "mlp"),
        ({"final_norm": "nothing"}, "final_norm"),
        ({"encoding": "rope_axial", "encoding_options": {"offset": "1"}}, "offset"),
        ({"encoding": "rope_axial", "encoding_options": {"reference": 0}}, "reference[0]"),
        ({"encoding": "rope_axial", "encoding_options": {"reference": (4, 0)}}, "reference[1]"),
        ({"encoding": "rope_axial", "encoding_options": {"pairing": "half"}}, "pairing"),
    ],
)
def test_wrong_values(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        create_model("vit_micro_patch4", **{**SMALL, "heads": 4, **options})
    assert error.value.field == field
    assert "\n" not in str(error.value)


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


def test_periods_rounded_to_bfloat16() -> None:
    """DINOv3's weights hold them so: 100^(4/12) = 4.6416 becomes 4.65625, 100^(8/12) = 21.544 becomes 21.5."""
    encoding = create_encoding("rope_axial", depth=1, heads=1, dim=12, train_grid=(4, 6), rounding="bfloat16")
    expected = [1 / period for _ in range(2) for period in (1.0, 4.65625, 21.5)]
    assert encoding.rotation_angles((2, 2))[0, -1].tolist() == pytest.approx(expected, rel=1e-6)


def test_a_reference_of_two_sides() -> None:
    encoding = create_encoding(
        "rope_axial", depth=1, heads=1, dim=4, train_grid=(4, 6), coordinates="squeezed", reference=(8, 10)
    )
    # The last cell of (2, 5): x 4 / 5 * 10, y 1 / 2 * 8.
    assert encoding.rotation_angles((2, 5))[0, -1].tolist() == pytest.approx([8, 4])


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
