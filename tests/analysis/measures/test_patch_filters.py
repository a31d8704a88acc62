"""Principal components of the patch embedding, against the definition written out."""

from __future__ import annotations

import numpy as np
import torch

from sightline.analysis import patch_filters
from sightline.models import create_model


def model(**options):
    return create_model("vit_micro_patch4", **({"image_size": (12, 20), "depth": 1, "dim": 60, "heads": 4} | options))


def test_components_are_those_of_the_covariance(randomise):
    one = randomise(model())
    found = patch_filters(one)
    filters, variance = found["filters"], found["variance"]
    assert (filters.shape, filters.dtype) == ((28, 4, 4, 3), np.float32)
    weight = one.patch_embed.proj.weight.detach().double().numpy()
    centred = weight - weight.mean(0)
    powers, vectors = np.linalg.eigh(centred.T @ centred)
    np.testing.assert_allclose(variance, powers[::-1][:28] / powers.sum(), atol=1e-5)
    for k in range(28):
        # Back to the order of a flat patch.
        mine, theirs = filters[k].transpose(2, 0, 1).ravel(), vectors[:, ::-1][:, k]
        assert abs(abs(mine @ theirs) - 1) < 1e-4
    assert variance.std() > 1e-3


def test_an_embedding_of_rank_1_has_one_component():
    one, pattern = model(), torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(3))
    amounts = torch.linspace(-1, 2, 60)
    with torch.no_grad():
        one.patch_embed.proj.weight.copy_(amounts.unsqueeze(1) * pattern.flatten())
    found = patch_filters(one)
    np.testing.assert_allclose(found["variance"][0], 1, atol=1e-5)
    expected = (pattern / pattern.norm()).numpy().transpose(1, 2, 0)
    sign = np.sign(expected.ravel()[np.abs(expected).argmax()])
    np.testing.assert_allclose(found["filters"][0], sign * expected, atol=1e-5)
