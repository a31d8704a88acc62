"""The logit lens equals its definition, written out token by token; known cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.analysis import logit_lens
from sightline.analysis.analyse import analysed_together
from sightline.analysis.measures.heads import AttentionDistance
from sightline.analysis.measures.logit_lens import LogitLens, lens, pooled_logits
from sightline.errors import InputError
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.analysis.saying import CLASSES, POOLS, layers_of, outright, some_images, tiny


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


def test_the_class_token_says_what_the_model_says():
    model = tiny(num_registers=2)
    images = torch.stack(some_images((12, 20), (12, 20)))
    tokens, layout = layers_of(model, images)[1]
    with torch.no_grad():
        torch.testing.assert_close(lens(model, tokens, layout)[:, 0], model(images), atol=1e-5, rtol=1e-5)


def test_one_hot_tokens_say_their_class():
    tokens = torch.eye(24)[[3, 5, 1, 0, 1, 2, 4]][None]
    layout = TokenLayout.uniform(Grid(2, 3), 1)
    torch.testing.assert_close(lens(outright(), tokens, layout), tokens[..., :CLASSES])


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


def test_images_of_several_grids_have_no_maps():
    found = logit_lens(tiny(), some_images((12, 20), (8, 4)))
    assert found["probability"].shape == (2, 1, 0, 0)
    same = logit_lens(tiny(), some_images((12, 20), (12, 20)))
    assert same["probability"].shape == (2, 1, 3, 5)


def test_nobody_is_shown_the_attention_of_a_pool_of_one():
    """What it gives a measure of attention is what the model does alone."""
    model, images = tiny(pool="attention"), some_images((12, 20), (8, 4))

    class Calls(AttentionDistance):
        seen: list = []  # noqa: RUF012

        def attention(self, block):
            self.seen.append((block.layer, block.grid))
            super().attention(block)

    analysed_together(model, [Calls], images)
    without, Calls.seen = Calls.seen, []
    analysed_together(model, {"attention": Calls, "lens": lambda model: LogitLens(model, [0, 1])}, images)
    assert Calls.seen == without


def test_refusals():
    with pytest.raises(InputError, match=r"^logit_lens") as refused:
        logit_lens(tiny(head="pix", pool="mean"), some_images((8, 8)))
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="no classifier"):
        logit_lens(tiny(num_classes=0), some_images((8, 8)))
    with pytest.raises(InputError, match="layer 2"):
        logit_lens(tiny(), some_images((8, 8)), layers=[2])
    for layers in (1, [], {0: 1}):
        with pytest.raises(InputError, match="logit_lens: layers"):
            logit_lens(tiny(), some_images((8, 8)), layers=layers)
