"""iRPE against the public code (golden_families/)."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.attention import AttentionSpec, plan_attention
from sightline.attention.content_bias import TokenPairs, bucket_of_pairs, content_of_output, content_of_scores
from sightline.convert.vit_projects import IRPE_METHODS
from sightline.encodings import create_encoding
from sightline.encodings.pattern.irpe import Irpe, IrpeBuckets, piecewise
from sightline.models.block import Attention, LayerInputs
from sightline.models.config import ViTConfig
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment
from tests.attention.irpe_by_hand import attention_by_hand
from tests.parity.family_files import TOLERANCE, assert_close, files, read

GRADIENTS = 1e-4
CASES, TABLES = files("irpe"), files("irpe_buckets")


@pytest.mark.parametrize("file", TABLES)
def test_buckets(file: str) -> None:
    tensors, args = read(file)
    kinds = {"cross_rows": ("cross", "rows"), "cross_cols": ("cross", "cols")}
    kinds |= {theirs: (ours, "table") for theirs, ours in IRPE_METHODS.items() if ours != "cross"}
    seen = 0
    for key, expected in tensors.items():
        if (found := re.fullmatch(r"index\.piecewise\.\w+\.r([\d.]+)", key)) is not None:
            half = len(expected) // 2
            assert torch.equal(piecewise(torch.arange(-half, half + 1), float(found[1])), expected.long()), key
            continue
        found = re.fullmatch(r"index\.(\w+?)\.r([\d.]+)\.(\d+)x(\d+)\.skip(\d+)", key)
        if found is None:
            assert key.startswith("officialbug."), key
            continue
        method, part = kinds[found[1]]
        buckets = IrpeBuckets(method, float(found[2]), part)
        whole = Segment.from_grid(Grid(int(found[3]), int(found[4])), torch.device("cpu"))
        prefix = int(found[5])
        ours = bucket_of_pairs(buckets, TokenPairs(whole, whole, prefix, prefix))[0]
        assert torch.equal(ours, expected.long()), key
        seen += 1
    assert seen
    for key, said in args.get("configs", {}).items():
        name, ratio = key.split(".r")
        buckets = IrpeBuckets(kinds[name][0], float(ratio), kinds[name][1])
        assert said["num_buckets"] == {name: buckets.count + (name != "skip0") for name in said["num_buckets"]}


def attended(attention: Attention, x: Tensor, layout: TokenLayout, encoding: Irpe) -> Tensor:
    spec = AttentionSpec.of(x, attention.num_heads, attention.head_dim)
    return attention(x, LayerInputs(plan_attention(encoding.pattern(0, layout), layout, spec=spec)))


def attention_of(tensors: dict[str, Tensor], args: dict[str, Any]) -> tuple[Attention, Irpe, TokenLayout]:
    """Our attention and encoding with the file's weights, and where its tokens stand."""
    dim, heads, grid, skip = args["dim"], args["num_heads"], Grid(*args["grid"]), args["skip"]
    encoding = create_encoding(
        "irpe",
        depth=1,
        heads=heads,
        dim=dim,
        train_grid=grid,
        num_prefix_tokens=skip,
        method=IRPE_METHODS[args["method"]],
        mode={"ctx": "contextual", "bias": "bias"}[args["mode"]],
        on="".join(sorted(args["rpe_on"], key="qkv".index)),
        shared_heads=args["shared_head"],
        ratio=float(args["ratio"]),
    )
    assert isinstance(encoding, Irpe)
    attention = Attention(ViTConfig(dim=dim, depth=1, heads=heads, qkv_bias=args["qkv_bias"]))
    tables, rest = {}, {}
    for key, value in tensors.items():
        if (
            found := re.fullmatch(r"sd\.rpe_([qkv])\.(?:rp_(rows|cols)\.)?lookup_table_(?:weight|bias)", key)
        ) is not None:
            tables[f"{found[1]}_{found[2] or 'table'}"] = value.unsqueeze(0)
        elif key.startswith("sd."):
            rest[key.removeprefix("sd.")] = value
    encoding.load_state_dict(tables)
    attention.load_state_dict(rest)
    return attention, encoding, TokenLayout.uniform(grid, len(tensors["in.x"]), num_prefix_tokens=skip)


@pytest.mark.parametrize("file", CASES)
@torch.no_grad()
def test_outputs(file: str) -> None:
    tensors, args = read(file)
    attention, encoding, layout = attention_of(tensors, args)
    x = tensors["in.x"]
    assert_close(attended(attention, x, layout, encoding), tensors["out.y"])
    for key, value in tensors.items():
        if key.startswith("officialbug.") and value.shape == tensors["out.y"].shape:
            assert (attended(attention, x, layout, encoding) - value).abs().max() > 5 * TOLERANCE, key
    # And each term alone.
    q, k, _ = attention.qkv(x).unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    pattern, prefix = encoding.pattern(0, layout), layout.num_prefix_tokens
    segment = layout.segments[0]
    pairs = TokenPairs(segment, segment, prefix, prefix)
    for where, made_of in (("k", "queries"), ("q", "keys")):
        if f"out.rpe_{where}" not in tensors:
            continue
        theirs = tensors[f"out.rpe_{where}"]
        if args["mode"] == "bias":
            terms = [term for on, term in zip(encoding.config.on, by_on(pattern, encoding), strict=True) if on == where]
            ours = sum(type(pattern)((term,)).bias(segment, segment, prefix, prefix) for one in terms for term in one)
            theirs = theirs.expand(-1, ours.shape[1], -1, -1)
        else:
            ours = content_of_scores(type(pattern)(tuple(pattern.terms_of(made_of))), q, k, pairs)
        assert_close(ours if where == "k" else ours.transpose(2, 3), theirs)
    if "out.rpe_v" in tensors:
        scores, added = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5, content_of_scores(pattern, q, k, pairs)
        weights = (scores if added is None else scores + added).softmax(-1)
        assert_close(content_of_output(pattern, weights, pairs), tensors["out.rpe_v"])


def by_on(pattern, encoding: Irpe) -> list[tuple]:
    """The terms of each of q, k and v that has some."""
    parts = len(encoding.buckets)
    return [pattern.terms[start : start + parts] for start in range(0, len(pattern.terms), parts)]


@pytest.mark.parametrize("file", CASES)
def test_gradients(file: str) -> None:
    """Of the input, and of each weight and table, against the definition in float64."""
    tensors, args = read(file)
    attention, encoding, layout = attention_of(tensors, args)
    x = tensors["in.x"].clone().requires_grad_()
    weight = torch.randn(tensors["out.y"].shape, generator=torch.Generator().manual_seed(0))
    parameters = {**dict(attention.named_parameters()), **dict(encoding.named_parameters())}
    found = torch.autograd.grad((attended(attention, x, layout, encoding) * weight).sum(), [x, *parameters.values()])

    attention, encoding = attention.double(), encoding.double()
    parameters = {**dict(attention.named_parameters()), **dict(encoding.named_parameters())}
    wide = tensors["in.x"].double().requires_grad_()
    coords = [tuple(one) for one in layout.segments[0].coords[0].tolist()]
    outs = []
    for image in wide:
        q, k, v = attention.qkv(image).unflatten(-1, (3, attention.num_heads, -1)).permute(1, 2, 0, 3)
        prefix = layout.num_prefix_tokens
        out = attention_by_hand(encoding, q, k, v, coords, coords, prefix, prefix)
        outs.append(attention.proj(out.transpose(0, 1).flatten(1)))
    assert (torch.stack(outs) - tensors["out.y"]).abs().max() <= TOLERANCE
    expected = torch.autograd.grad((torch.stack(outs) * weight).sum(), [wide, *parameters.values()])
    for name, one, other in zip(["x", *parameters], found, expected, strict=True):
        # A bias of the keys moves all scores of a query alike: its own third has next to no gradient.
        assert (one - other).norm() <= GRADIENTS * other.norm(), name
