"""Similarity of patches is the mean over pairs of different patches, taken one by one."""

from __future__ import annotations

import numpy as np
import torch

from sightline.analysis import patch_similarity
from sightline.analysis.measures.tokens import mean_cosine
from tests.analysis.measures import token_cases as cases


def written_out(patches):
    """Over all pairs of two."""
    count = len(patches)
    cosines = [
        float(patches[one] @ patches[other] / (patches[one].norm() * patches[other].norm()))
        for one in range(count)
        for other in range(count)
        if one != other
    ]
    return np.mean(cosines) if cosines else np.nan


@cases.every
@cases.models
def test_it_is_the_mean_over_pairs(shown, options):
    model = cases.model(**options)
    given = cases.SHOWN[shown](model)
    found = patch_similarity(model, given)["similarity"]
    expected = [
        [written_out(tokens[model.num_prefix_tokens :]) for tokens in layers]
        for layers, *_ in cases.layers_of(model, given)
    ]
    assert found.shape == (len(expected), 3)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.nanstd(found) > 1e-3


def test_known_cases():
    alike = torch.randn(1, 1, 7).expand(2, 5, 7)
    torch.testing.assert_close(mean_cosine(alike), torch.ones(2, dtype=torch.float64))
    # Lengths do not count.
    torch.testing.assert_close(mean_cosine(alike * torch.arange(1.0, 6).reshape(1, 5, 1)), torch.ones(2).double())
    assert mean_cosine(torch.eye(6).unsqueeze(0)) == 0
    # Two that are opposite and one that is nothing: one pair of three is -1.
    opposite = torch.tensor([[[1.0, 2.0], [-1.0, -2.0], [0.0, 0.0]]])
    torch.testing.assert_close(mean_cosine(opposite), torch.tensor([-1 / 3], dtype=torch.float64))
    assert mean_cosine(torch.ones(1, 1, 3)).isnan()


def test_no_image():
    assert patch_similarity(cases.model(), {(12, 20): []})["similarity"].shape == (0, 3)
