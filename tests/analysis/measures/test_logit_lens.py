"""The logit lens equals its definition, written out token by token; known cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.analysis import logit_lens
from sightline.analysis.measures.logit_lens import lens, pooled_logits
from tests.analysis.saying import CLASSES, POOLS, layers_of, some_images, tiny


def alone(model, token):
    """The definition for one token [dim]: its logits [classes], by weights and sums."""
    token, pool = model.norm(token[None])[0], model.attn_pool
    if model.config.pool in ("attention", "query"):
        # A softmax over one key is 1, so that its value is what the probe reads.
        value = pool.kv(token).chunk(2)[1]
        read = pool.proj.weight @ value + pool.proj.bias
        token = pool.latent[0, 0] + read if model.config.pool == "query" else read + pool.mlp(pool.norm(read[None]))[0]
    return model.head(model.fc_norm(token[None]))[0]


@pytest.mark.parametrize("options", POOLS)
def test_a_token_by_itself(options):
    model = tiny(**options)
    for images in (torch.stack(some_images((12, 20), (12, 20))), some_images((12, 20), (8, 4), (4, 4))):
        for layer in (-1, 0, 1):
            tokens, layout = layers_of(model, images)[layer]
            with torch.no_grad():
                found = lens(model, tokens, layout)
                expected = torch.stack([torch.stack([alone(model, one) for one in row]) for row in tokens])
            assert found.shape == (*tokens.shape[:2], CLASSES)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
            assert expected.std() > 0.01


@pytest.mark.parametrize("options", POOLS)
def test_pooled_at_the_last_layer_are_the_models_logits(options):
    model = tiny(**options)
    images = some_images((12, 20), (8, 4), (4, 4))
    tokens, layout = layers_of(model, images)[1]
    with torch.no_grad():
        torch.testing.assert_close(pooled_logits(model, tokens, layout), model(images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_maps_are_of_the_patches_that_say_it(link):
    model = tiny("lookhere_90", heads=12, dim=48, score_link=link)
    images = torch.stack(some_images((12, 20), (12, 20)))
    found = logit_lens(model, images, layers=[-1, 0])
    assert found["layers"].tolist() == [1, 0]
    assert found["top_class"].shape == found["probability"].shape == (2, 2, 3, 5)
    kept = layers_of(model, images)
    for place, layer in enumerate((1, 0)):
        tokens, layout = kept[layer]
        with torch.no_grad():
            logits = lens(model, tokens, layout)[:, 1:]
        sure = logits.sigmoid() if link == "sigmoid" else logits.softmax(-1)
        assert (found["top_class"][:, place].reshape(2, 15) == logits.argmax(-1).numpy()).all()
        np.testing.assert_allclose(found["probability"][:, place].reshape(2, 15), sure.max(-1).values, atol=1e-6)
    assert len(np.unique(found["top_class"])) > 1
