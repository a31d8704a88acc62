"""What a pack promises, whatever the encoding, the pooling and the parts: as functions of a configuration."""

from __future__ import annotations

import torch

from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import (
    LOGITS,
    PATCH,
    TRAIN,
    assert_same_gradients,
    assert_spread,
    build,
    gradients,
    loss_of,
)


def check_packed_with_drops(name: str, pool: str = "cls", **overrides) -> None:
    """Images of several sizes, most of their tokens dropped, give in one pack the logits and gradients that each gives
    alone, in whatever order they stand."""
    model = build(name, pool, **overrides)
    prefix = model.num_prefix_tokens
    grids = [Grid(3, 5), Grid(7, 2), Grid(1, 1), TRAIN, Grid(5, 3)]
    kept = [torch.randperm(grid.cells)[: count + 1] for count, grid in enumerate(grids)]
    pieces = [torch.randn(1, len(index), 3 * PATCH**2) for index in kept]
    kept[2], pieces[2] = kept[2][:1], pieces[2][:, :1]
    alone = torch.cat(
        [
            model(piece, layout=TokenLayout.uniform(grid, 1, num_prefix_tokens=prefix).keep(index.unsqueeze(0)))
            for grid, index, piece in zip(grids, kept, pieces, strict=True)
        ]
    )
    assert_spread(alone.detach())
    loss_of(alone).backward()
    expected = gradients(model)
    for order in ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1]):
        layout = TokenLayout.packed([grids[number] for number in order], num_prefix_tokens=prefix)
        packed = model(
            torch.cat([pieces[number] for number in order], dim=1),
            layout=layout.keep([kept[number] for number in order]),
        )
        assert (packed - alone[order]).abs().max() < LOGITS
        loss_of(packed).backward()
        assert_same_gradients(gradients(model), expected)
