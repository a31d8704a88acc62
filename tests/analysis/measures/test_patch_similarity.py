"""Similarity of patches is the mean over pairs of different patches, taken one by one."""

from __future__ import annotations

import numpy as np

from sightline.analysis import patch_similarity
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
