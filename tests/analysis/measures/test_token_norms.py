"""Norms of tokens, and patches that stand out where they were put."""

from __future__ import annotations

import numpy as np
import torch

from sightline.analysis import token_norms
from sightline.analysis.images import NATIVE
from tests.analysis.measures import token_cases as cases

# Features of random models are even: that some stand out, less has to be asked for.
TIMES = 1.1


@cases.every
@cases.models
def test_they_are_as_written_out(shown, options):
    model = cases.model(**options)
    given = cases.SHOWN[shown](model)
    found = token_norms(model, given, times=TIMES)
    expected = cases.layers_of(model, given)
    assert found["outliers"].shape == (len(expected), 3)
    places = []
    for number, (layers, _, grid, indices) in enumerate(expected):
        for layer, tokens in enumerate(layers):
            norms = np.sqrt((tokens.numpy() ** 2).sum(-1))
            prefix, patches = norms[: model.num_prefix_tokens], norms[model.num_prefix_tokens :]
            beyond = patches > TIMES * np.median(patches)
            at = number, layer
            np.testing.assert_allclose(found["prefix_norm"][at], prefix, atol=1e-5)
            np.testing.assert_allclose(found["mean_norm"][at], patches.mean(), atol=1e-5)
            np.testing.assert_allclose(found["median_norm"][at], np.median(patches), atol=1e-5)
            np.testing.assert_allclose(found["greatest_norm"][at], patches.max(), atol=1e-5)
            np.testing.assert_allclose(found["outliers"][at], beyond.mean(), atol=1e-5)
            places += [(number, layer - 1, *divmod(int(index), grid.cols)) for index in indices[beyond]]
    assert [tuple(one) for one in found["outlier_places"].tolist()] == sorted(places)
    assert bool(places)
    assert found["mean_norm"].std() > 0.01


def long_patches(model):
    """A pack whose third image has two patches 40 times as long as the others, at (1, 6) and (0, 2)."""
    given = cases.batch(model, cases.images((3, 5), (5, 2), (2, 7), (3, 5)))
    given.inputs[:, 25 + 13] *= 40
    given.inputs[:, 25 + 2] *= 40
    return {NATIVE: [given]}


def test_outliers_are_where_they_were_put():
    model = cases.model("none")
    with torch.no_grad():
        model.patch_embed.proj.bias.zero_()
    found = token_norms(model, long_patches(model))
    before = found["outlier_places"][found["outlier_places"][:, 1] == -1]
    assert before.tolist() == [[2, -1, 0, 2], [2, -1, 1, 6]]
    assert found["outliers"][:, 0].tolist() == [0, 0, 2 / 14, 0]
