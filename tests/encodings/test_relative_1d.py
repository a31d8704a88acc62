"""One-dimensional relative attention away from its training grid, and each of its options, against the formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.attention import attend
from sightline.encodings import create_encoding
from sightline.models.architectures.axial import lines_of
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

HEADS, WIDTH, GRID = 2, 4, (3, 5)
OPTIONS = [{}, {"per_head": True}, {"scaled": False}, {"prefix": False}, {"keys": True}, {"values": True},
           {"keys": True, "values": True, "scaled": False, "per_head": True, "shared": True}]  # fmt: skip


def made(tokens: int, **options):
    shape = {"depth": 2, "heads": HEADS, "dim": HEADS * WIDTH, "train_grid": GRID, "num_prefix_tokens": tokens}
    return randomise_parameters(create_encoding("relative_1d", **shape, **options))


def by_hand(encoding, q: Tensor, k: Tensor, v: Tensor, layer: int, places: Tensor, prefix: int) -> Tensor:
    """Pair by pair, of one image [heads, tokens, width]; `places` in the sequence [tokens]."""
    config, scale = encoding.config, WIDTH**-0.5
    reach = GRID[0] * GRID[1] + (prefix if config.prefix else 0) - 1
    out = torch.zeros_like(v)
    for head in range(HEADS):
        rows = []
        for asks in range(len(places)):
            scores, added = [], []
            for asked in range(len(places)):
                offset = max(-reach, min(reach, int(places[asks] - places[asked])))
                # Nothing where a prefix token has no place in the sequence.
                there = config.prefix or min(asks, asked) >= prefix
                here = 0 if config.shared else layer, head if config.per_head else 0
                of_place = q[head, asks] @ encoding.tables[*here, offset + reach] * there
                if config.keys:
                    of_place = of_place + k[head, asked] @ encoding.key_tables[*here, reach - offset] * there
                scores.append(scale * q[head, asks] @ k[head, asked] + (scale if config.scaled else 1) * of_place)
                of_value = encoding.value_tables[*here, offset + reach] * there if config.values else 0
                added.append(v[head, asked] + of_value)
            rows.append(torch.stack(scores).softmax(0) @ torch.stack(added))
        out[head] = torch.stack(rows)
    return out


@pytest.mark.parametrize("grid", [GRID, (2, 3), (4, 6)])
@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_every_option(options: dict, prefix: int, grid: tuple[int, int]) -> None:
    """On any grid a displacement has the offset that it has on rows as long as the training grid's."""
    encoding = made(prefix, **options)
    layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=prefix)
    y, x = layout.segments[0].coords[0].unbind(-1)
    places = torch.cat((torch.arange(prefix), prefix + y * GRID[1] + x))
    q, k, v = torch.randn(3, HEADS, layout.slots, WIDTH)
    found = attend(q[None], k[None], v[None], encoding.pattern(1, layout), layout)[0]
    assert (found - by_hand(encoding, q, k, v, 1, places, prefix)).abs().max() < 1e-5


@torch.no_grad()
def test_a_column_of_an_axial_model_is_read_at_its_own_offsets() -> None:
    """The neighbour below is W places on, in a column too."""
    encoding = made(0)
    layout = lines_of(TokenLayout.uniform((3, 5), 1, num_prefix_tokens=0), 1).layout
    q, k, v = torch.randn(3, HEADS, 15, WIDTH)
    found = attend(q[None], k[None], v[None], encoding.pattern(0, layout), layout)[0]
    for column in range(5):
        at = slice(3 * column, 3 * column + 3)
        expected = by_hand(encoding, q[:, at], k[:, at], v[:, at], 0, 5 * torch.arange(3), 0)
        assert (found[:, at] - expected).abs().max() < 1e-5


@torch.no_grad()
def test_long_images_in_blocks(monkeypatch) -> None:
    """Queries that are computed block by block have the places that they have together."""
    from sightline.attention import sdpa

    encoding = made(1, keys=True, values=True)
    layout = TokenLayout.uniform((7, 6), 2)
    q, k, v = torch.randn(3, 2, HEADS, layout.slots, WIDTH)
    whole = attend(q, k, v, encoding.pattern(0, layout), layout)
    monkeypatch.setattr(sdpa, "BIAS_BYTES", 20 * 43 * 10)
    assert (attend(q, k, v, encoding.pattern(0, layout), layout) - whole).abs().max() < 1e-5
