"""Principal components of the patch embedding, against the definition written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sightline.analysis import patch_filters
from sightline.analysis.measures.embedding import signed
from sightline.errors import InputError
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


def test_signs_do_not_hang_on_rounding():
    """Weights that mirror each other are as large as each other but for rounding: the first of them says the sign."""
    wave = torch.tensor([[0.1, -0.7, 0.2, 0.7001], [0.1, -0.7001, 0.2, 0.7], [0.5, 0.1, -0.2, 0.3]])
    expected = torch.tensor([-1.0, -1.0, 1.0]).unsqueeze(1) * wave
    torch.testing.assert_close(signed(wave), expected)
    torch.testing.assert_close(signed(-wave), expected)


def test_pictures_are_between_0_and_1_with_grey_for_0():
    found = patch_filters(model(), components=5)
    pictures, filters = found["pictures"], found["filters"]
    assert pictures.shape == (5, 4, 4, 3)
    assert pictures.min() >= 0
    assert pictures.max() <= 1
    np.testing.assert_allclose(np.abs(pictures - 0.5).max((1, 2, 3)), 0.5, atol=1e-6)
    np.testing.assert_allclose(np.sign(pictures - 0.5), np.sign(filters))


def test_there_are_no_more_components_than_filters_or_values():
    assert patch_filters(model(dim=16), components=100)["filters"].shape[0] == 16
    assert patch_filters(model(), components=100)["filters"].shape[0] == 48


def test_filters_that_are_all_alike_have_no_variance():
    one = model()
    with torch.no_grad():
        one.patch_embed.proj.weight.copy_(torch.ones(60, 48))
    found = patch_filters(one)
    assert not found["variance"].any()
    assert np.isfinite(found["pictures"]).all()


def test_an_embedder_without_a_linear_projection_is_refused():
    one = model()
    one.patch_embed.proj = nn.Identity()
    with pytest.raises(InputError, match=r"^patch_filters: embedder"):
        patch_filters(one)
