"""One-dimensional relative attention: the words of ViT's appendix D.4, and scenic's AxialResNet (golden_families/)."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from sightline.attention import attend
from sightline.attention.content_bias import ContentBias, TokenPairs, bucket_of_pairs
from sightline.attention.pattern import Pattern
from sightline.encodings import create_encoding
from sightline.encodings.pattern.relative_1d import Offsets, Relative1d
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment
from tests.parity.family_files import assert_close, files, read, weights


@pytest.mark.parametrize("file", files("relative1d_paper"))
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("kind", ["shared", "per_head"])
def test_the_papers_words(file: str, kind: str, scaled: bool) -> None:
    tensors, given = read(file)
    heads, prefix = given["num_heads"], given["prefix"]
    options = {"depth": 1, "heads": heads, "dim": given["dim"], "train_grid": given["grid"]}
    encoding = create_encoding(
        "relative_1d", num_prefix_tokens=prefix, per_head=kind == "per_head", scaled=scaled, **options
    )
    assert isinstance(encoding, Relative1d)
    table = tensors[f"in.relative_{kind}"]
    encoding.load_state_dict({"tables": table.reshape(1, -1, *table.shape[-2:])})
    layout = TokenLayout.uniform(given["grid"], 1, num_prefix_tokens=prefix)
    q, k, v = (tensors[f"in.{name}"].clone().requires_grad_() for name in "qkv")
    expected = tensors[f"out.{kind}.{'both_scaled' if scaled else 'content_scaled_only'}"]
    found = attend(q, k, v, encoding.pattern(0, layout), layout)
    assert_close(found, expected)
    segment = layout.segments[0]
    index = bucket_of_pairs(encoding.offsets, TokenPairs(segment, segment, prefix, prefix))[0]
    assert torch.equal(index, tensors["index.offset"].long())
    assert index[0, 0] == prefix + segment.patches - 1
    # Gradients, by the formula.
    scale = q.shape[-1] ** -0.5
    vectors = encoding.tables[0][:, index].expand(heads, -1, -1, -1)
    logits = torch.einsum("bhid,hijd->bhij", q, vectors)
    assert_close(logits.detach(), tensors[f"out.{kind}.relative_logits"])
    scores = scale * q @ k.transpose(-1, -2) + (scale if scaled else 1) * logits
    again = scores.softmax(-1) @ v
    leaves = [q, k, v, encoding.tables]
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), leaves, retain_graph=True),
        torch.autograd.grad(again.square().sum(), leaves),
        strict=True,
    ):
        assert (one - other).abs().max() < 1e-4 * other.abs().max()


@pytest.mark.parametrize("file", files("relative1d_scenic"))
@torch.no_grad()
def test_scenic(file: str) -> None:
    """Keys are multiplied by vectors of offsets at the place of the query, as its code has it: they are a part of what
    asks. Its offsets are key - query, and nothing is scaled."""
    tensors, given = read(file)
    state, heads, length = weights(tensors), given["num_heads"], given["length"]
    x, width = tensors["in.x"], given["features"] // given["num_heads"]
    qkv = x @ state["Dense_0/kernel"]
    qkv = F.group_norm(qkv.transpose(1, 2), 32, state["gn_qkv/scale"], state["gn_qkv/bias"], eps=1e-4).transpose(1, 2)
    shares = [width // 2, width // 2, width]
    q, k, v = qkv.unflatten(-1, (heads, 2 * width)).transpose(1, 2).split(shares, dim=-1)
    of_q, of_k, of_v = state["relative_pos_emb"].flip(-1).split(shares)
    asks, asked = torch.cat((q, k), -1), torch.cat((k, torch.zeros_like(k)), -1)
    offsets = Offsets(length, length - 1)
    terms = (
        ContentBias(torch.cat((of_k, of_q)).unsqueeze(0), offsets, False, heads, "queries"),
        ContentBias(of_v.unsqueeze(0), offsets, False, heads, "attention"),
    )
    layout = TokenLayout.uniform((1, length), len(x), num_prefix_tokens=0)
    y = attend(asks * asks.shape[-1] ** 0.5, asked, v, Pattern(terms), layout).transpose(1, 2).flatten(2)
    y = F.group_norm(y.transpose(1, 2), 32, state["gn_out/scale"], state["gn_out/bias"], eps=1e-4).transpose(1, 2)
    assert_close(y, tensors["out.y"])


@pytest.mark.parametrize("file", files("relative1d_scenic"))
def test_scenics_tables_of_offsets(file: str) -> None:
    tensors, _ = read(file)
    for name, index in tensors.items():
        if not (sides := re.fullmatch(r"index\.relative_distance\.(\d+)x(\d+)", name)):
            continue
        asks, asked = map(int, sides.groups())
        grid = Segment.from_grid(TokenLayout.uniform((1, max(asks, asked)), 1).segments[0].grid, torch.device("cpu"))
        reach = max(asks, asked) - 1
        ours = bucket_of_pairs(Offsets(max(asks, asked), reach), TokenPairs(grid, grid, 0, 0))[0, :asks, :asked]
        # Theirs is key - query, from the least of the two lengths on.
        assert torch.equal(asks - 1 - (ours - reach), index.long()), name
