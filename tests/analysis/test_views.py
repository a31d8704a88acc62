"""What the middle of the image may look at."""

from __future__ import annotations

import numpy as np
import pytest

from sightline import create_encoding
from sightline.analysis.views import field_of_view, visible_from
from sightline.models import create_model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout


def model(encoding):
    return create_model("vit_micro_patch4", encoding=encoding, num_classes=5, image_size=20, depth=2, dim=48, heads=4)


@pytest.mark.parametrize("encoding", ["lookhere_90", "lookhere_180", "alibi_2d"])
@pytest.mark.parametrize("layer", [0, 1])
def test_it_is_the_row_of_the_bias(encoding, layer):
    one = model(encoding)
    found = field_of_view(one, layer, Grid(4, 7))
    assert (found.shape, found.dtype) == ((4, 4, 7), np.float32)
    bias = one.encoding.bias_matrix((4, 7), layer=layer, num_prefix_tokens=0)
    # The query at row 2, column 3.
    expected = np.exp(bias[:, 2 * 7 + 3].double().numpy()).reshape(4, 4, 7)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (found[:, 2, 3] == 1).all()
    assert found.std() > 0.01


def test_what_is_masked_is_not_seen():
    """Two directed heads of a half-plane each see nothing behind them."""
    one = create_encoding("lookhere_180", depth=1, heads=12, dim=48)
    seen = one.bias_matrix((5, 5), num_prefix_tokens=0)[:, 12] > -1e30
    found = field_of_view(
        create_model("vit_micro_patch4", encoding="lookhere_180", image_size=20, depth=1, dim=48, heads=12),
        0,
        Grid(5, 5),
    )
    assert ((found > 0).reshape(12, 25) == seen.numpy()).all()
    assert not seen.all()


@pytest.mark.parametrize("encoding", ["lookhere_90", "alibi_2d", "rpe_learned", "lookhere_45+rpe_learned"])
@pytest.mark.parametrize("cell", [(0, 0), (3, 1), (2, 6)])
def test_what_is_seen_from_a_cell_is_its_row_of_every_layers_bias(encoding, cell, randomise):
    one = randomise(model(encoding))
    visible, bias = visible_from(one, (4, 7), cell)
    assert (visible.shape, visible.dtype) == ((2, 4, 4, 7), bool)
    assert (bias.shape, bias.dtype) == ((2, 4, 4, 7), np.float32)
    layout = TokenLayout.uniform((4, 7), 1, num_prefix_tokens=0)
    (whole,) = layout.segments
    for layer in range(2):
        row = one.encoding.pattern(layer, layout).bias(whole, whole, 0, 0)[0, :, cell[0] * 7 + cell[1]]
        row = row.detach().double().numpy().reshape(4, 4, 7)
        assert (visible[layer] == (row > -1e38)).all()
        np.testing.assert_allclose(bias[layer][visible[layer]], row[visible[layer]], rtol=1e-6, atol=1e-7)
        assert (bias[layer][~visible[layer]] == -np.inf).all()
    assert bias[visible].std() > 0.01
