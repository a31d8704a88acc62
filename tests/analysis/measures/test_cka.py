"""Alignment of layers is the published formula of the unbiased estimator, written out, whatever came in batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.analysis.images import NATIVE
from sightline.analysis.measures.cka import cka
from tests.analysis.measures import token_cases as cases


def hsic(k, kernel):
    """Song et al. (2012), as Nguyen et al. (2021) print it in equation 3."""
    count = len(k)
    k, kernel = k - np.diag(np.diag(k)), kernel - np.diag(np.diag(kernel))
    ones = np.ones(count)
    return (
        np.trace(k @ kernel)
        + (ones @ k @ ones) * (ones @ kernel @ ones) / ((count - 1) * (count - 2))
        - 2 / (count - 2) * (ones @ k @ kernel @ ones)
    ) / (count * (count - 3))


def written_out(one, other, sizes=None):
    """Of features [examples, dim] each, in mini-batches of these sizes."""
    starts = np.cumsum([0, *(sizes or [len(one)])])
    sums = np.zeros(3)
    for low, high in itertools.pairwise(starts):
        k, kernel = (x[low:high] @ x[low:high].T for x in (one, other))
        sums += (high - low) * np.array([hsic(k, kernel), hsic(k, k), hsic(kernel, kernel)])
    return sums[0] / np.sqrt(sums[1] * sums[2])


def features(model, shown, of):
    """[layers][examples, dim]."""
    first = model.num_prefix_tokens
    found = [[tokens[first:].numpy() for tokens in layers] for layers, *_ in cases.layers_of(model, shown)]
    each = [[patches.mean(0, keepdims=True) if of == "images" else patches for patches in image] for image in found]
    return [np.concatenate(layer) for layer in zip(*each, strict=True)]


def many(count=9):
    grids = [(3, 5), (5, 2), (2, 7), (1, 1)]
    return cases.images(*(grids[number % 4] for number in range(count)))


OTHER = {"encoding": "rope_axial", "seed": 1, "num_registers": 2, "depth": 3, "dim": 24, "heads": 3}


@pytest.mark.parametrize("of", ["images", "patches"])
@pytest.mark.parametrize("shown", ["plain", "several", "dropped and padded"])
def test_two_models(shown, of):
    model, other = cases.model(), cases.model(**OTHER)
    if shown == "dropped and padded":
        kept = [[0, 3, 4, 7, 14], [1, 2, 9], list(range(14)), [0]]
        given = {NATIVE: iter([cases.dropped(model, many(4), kept)])}
        once = {NATIVE: [cases.dropped(model, many(4), kept)]}
        with_other = {NATIVE: [cases.dropped(other, many(4), kept)]}
    else:
        given = torch.stack(cases.images(*[(3, 5)] * 6)) if shown == "plain" else many()
        once = with_other = given
    found = cka(model, other, given, of=of)["cka"]
    expected = [[written_out(one, two) for two in features(other, with_other, of)] for one in features(model, once, of)]
    assert found.shape == (3, 4)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.std() > 0.01


@pytest.mark.parametrize(("count", "sizes"), [(8, [8]), (9, [5, 4]), (13, [5, 8]), (14, [5, 5, 4])])
def test_mini_batches_are_of_examples_whatever_batches_they_come_in(count, sizes):
    model, other = cases.model(), cases.model(**OTHER)
    shown = torch.stack(cases.images(*[(3, 5)] * count))
    one, two = features(model, shown, "images"), features(other, shown, "images")
    expected = [[written_out(x, y, sizes) for y in two] for x in one]
    for step in (1, 2, 6, 14):
        given = {(12, 20): (cases.batch(model, part) for part in shown.split(step))}
        found = cka(model, other, given, together=5)
        np.testing.assert_allclose(found["cka"], expected, atol=1e-5)
        assert len(found.names[12, 20]) == count


@pytest.mark.parametrize("of", ["images", "patches"])
def test_with_itself_the_diagonal_is_1(of):
    model = cases.model()
    for other in (model, None):
        found = cka(model, other, many(), of=of)["cka"]
        np.testing.assert_allclose(np.diag(found), 1, atol=1e-9)
        np.testing.assert_allclose(found, found.T, atol=1e-9)
        assert found.min() < 0.99
    np.testing.assert_allclose(found, cka(model, model, many(), of=of)["cka"], atol=1e-9)


def test_images_are_prepared_for_each_model_at_the_size_of_the_first():
    draws = np.random.default_rng(0).integers(0, 255, (5, 20, 30, 3), dtype=np.uint8)
    pixels = [Image.fromarray(one) for one in draws]
    model = cases.model(image_size=16).float()
    other = cases.model(**OTHER, image_size=32).float()
    found = cka(model, other, pixels)
    assert found.sizes == ((16, 16),)
    np.testing.assert_allclose(found["cka"], cka(model, other, pixels, 16)["cka"])
    assert found["cka"].shape == (3, 4)
    assert np.isfinite(found["cka"]).all()
    assert cka(model, other, pixels, "native").sizes == (NATIVE,)
