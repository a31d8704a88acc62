"""Similarity of position embeddings, against the definition written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.analysis import position_similarity
from sightline.analysis.measures.embedding import MOST_PAIRS, queries_of
from sightline.models import create_model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout


def model(encoding, **options):
    shape = {"image_size": (12, 20), "depth": 1, "dim": 48, "heads": 4} | options
    return create_model("vit_micro_patch4", encoding=encoding, num_classes=5, **shape)


ADDED = ["learned_1d", "learned_2d", "sincos_2d", "factorized", "fourier", "rope_axial+learned_1d", "sincos_2d+fourier"]


@pytest.mark.parametrize("encoding", ADDED)
@pytest.mark.parametrize("size", [(12, 20), (24, 16)])
def test_it_is_the_cosine_of_what_is_added(encoding, size, randomise):
    one = randomise(model(encoding, num_registers=2))
    rows, cols = size[0] // 4, size[1] // 4
    prefix = one.num_prefix_tokens
    assert prefix >= 2
    found = position_similarity(one, sizes=size)
    similarity = found["similarity"]
    assert (similarity.shape, similarity.dtype) == ((rows, cols, rows, cols), np.float32)
    with torch.no_grad():
        added = one.encoding.added(0, TokenLayout.uniform((rows, cols), 1, num_prefix_tokens=prefix))[0, prefix:]
    added = added.double().numpy().reshape(rows, cols, -1)
    for y, x in [(0, 0), (1, cols - 1), (rows - 1, 1)]:
        for row in range(rows):
            for col in range(cols):
                a, b = added[y, x], added[row, col]
                expected = a @ b / np.sqrt((a @ a) * (b @ b))
                assert abs(similarity[y, x, row, col] - expected) < 1e-5
    assert similarity.std() > 0.01
    np.testing.assert_array_equal(found["query_rows"], range(rows))
    np.testing.assert_array_equal(found["query_cols"], range(cols))


def test_sines_hang_on_the_displacement_alone_and_are_symmetrical():
    similarity = position_similarity(model("sincos_2d"), sizes=(20, 28))["similarity"]
    flat = similarity.reshape(35, 35)
    np.testing.assert_allclose(flat, flat.T, atol=1e-6)
    np.testing.assert_allclose(np.diag(flat), 1, atol=1e-6)
    np.testing.assert_allclose(similarity[1, 2, 2, 4], similarity[2, 3, 3, 5], atol=1e-5)
    np.testing.assert_allclose(similarity[1, 2, 2, 4], similarity[3, 4, 2, 2], atol=1e-5)
    # Rows and columns are told apart: one step down is another similarity than two to the right.
    assert abs(similarity[2, 2, 3, 2] - similarity[2, 2, 2, 4]) > 0.01


@pytest.mark.parametrize("grid", [(3, 5), (32, 64), (64, 64), (48, 130), (1, 9000), (2100, 2100)])
def test_queries_of_large_grids_are_fewer_and_spread_evenly(grid):
    rows, cols = queries_of(Grid(*grid))
    cells = grid[0] * grid[1]
    assert len(rows) * len(cols) * cells <= max(MOST_PAIRS, cells)
    assert rows == sorted({*rows})
    assert rows[0] >= 0
    assert rows[-1] < grid[0]
    assert cols[0] >= 0
    assert cols[-1] < grid[1]
    if cells <= 2048:
        assert (len(rows), len(cols)) == grid
    # No more is left out than is needed: a quarter of what there is room for is there.
    assert len(rows) * len(cols) * cells * 4 >= min(MOST_PAIRS, cells**2)
