"""What heads may see, against half-planes that are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sightline.analysis import bias_matrices, fields_of_view
from sightline.models import create_model

ROWS, COLS = 5, 8
SIZE = (4 * ROWS, 4 * COLS)


def at(cell):
    """Where a cell's middle stands in the image."""
    return (cell[0] + 0.5) / ROWS, (cell[1] + 0.5) / COLS


def model(encoding, **options):
    shape = {"image_size": 20, "depth": 2, "dim": 96, "heads": 12} | options
    return create_model("vit_micro_patch4", encoding=encoding, num_classes=5, **shape)


@pytest.mark.parametrize("query", [None, (1, 6), (0, 0), (4, 3)])
def test_the_penalty_grows_with_the_distance(query):
    """2D-ALiBi sees all; LookHere's undirected heads too: slope times the Euclidean distance (equation 1)."""
    given = {} if query is None else {"query": at(query)}
    found = fields_of_view(model("alibi_2d"), sizes=SIZE, **given)
    y, x = query or (ROWS // 2, COLS // 2)
    rows, cols = np.mgrid[:ROWS, :COLS]
    distance = np.hypot(rows - y, cols - x)
    assert found["visible"].all()
    assert (found["visible_cells"] == ROWS * COLS).all()
    for layer in range(2):
        for bias in found["bias"][layer]:
            slope = -bias[y, (x + 1) % COLS] / distance[y, (x + 1) % COLS]
            assert slope > 0
            np.testing.assert_allclose(bias, -slope * distance, rtol=1e-2)
    np.testing.assert_allclose(found["weight"], np.exp(found["bias"]), rtol=1e-6)


@pytest.mark.parametrize("query", [(1, 6), (0, 0), (4, 3)])
def test_half_planes_and_quadrants_hold_as_many_cells_as_the_closed_form_says(query):
    """Borders are inside: what is up of a query is its row and all above, and so on (LookHere figure 9)."""
    one = model("lookhere", encoding_options={"directions": "halves-corners"}, depth=1, dim=128, heads=16)
    found = fields_of_view(one, sizes=SIZE, query=at(query))
    y, x = query
    up, down, left, right = y + 1, ROWS - y, x + 1, COLS - x
    halves = [up * COLS, down * COLS, ROWS * left, ROWS * right]
    corners = [up * left, up * right, down * left, down * right]
    assert found["visible_cells"][0].tolist() == halves * 2 + corners * 2
    assert found["visible"][:, :, y, x].all()
    assert (found["weight"][~found["visible"]] == 0).all()
    assert (found["bias"][~found["visible"]] == -np.inf).all()
    rows, cols = np.mgrid[:ROWS, :COLS]
    np.testing.assert_array_equal(found["visible"][0, 0], rows <= y)
    np.testing.assert_array_equal(found["visible"][0, 9], (rows <= y) & (cols >= x))


@pytest.mark.parametrize("encoding", ["lookhere_90", "lookhere_45", "rpe_learned", "lookhere_180+rpe_learned"])
def test_matrices_hold_the_view_of_every_patch(encoding, randomise):
    one = randomise(model(encoding))
    whole = bias_matrices(one, sizes=SIZE)
    bias = whole["bias"]
    assert (bias.shape, bias.dtype) == ((2, 12, 40, 40), np.float32)
    for y, x in [(0, 0), (2, 4), (3, 7)]:
        view = fields_of_view(one, sizes=SIZE, query=at((y, x)))
        row = bias[:, :, y * COLS + x].reshape(2, 12, ROWS, COLS)
        np.testing.assert_array_equal(row > -np.inf, view["visible"])
        np.testing.assert_allclose(row, view["bias"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(whole["visible_share"], (bias > -np.inf).sum((2, 3)) / 1600, atol=1e-9)
    assert np.isfinite(bias[0]).any()
    assert bias[np.isfinite(bias)].std() > 0.01
