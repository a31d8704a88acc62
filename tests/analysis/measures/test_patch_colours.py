"""Colours of patches are the first three principal components, stretched, with signs that do not hang on chance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.analysis import patch_colours
from sightline.analysis.images import NATIVE
from sightline.analysis.measures.patch_colours import colours_of
from sightline.tokens.grid import Grid
from tests.analysis.measures import token_cases as cases


def written_out(patches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By a singular value decomposition."""
    x = patches - patches.mean(0)
    _, values, components = np.linalg.svd(x, full_matrices=False)
    colours, explained = np.full((len(x), 3), 0.5), np.zeros(3)
    for number in range(min(3, len(values))):
        if values[number] > 1e-6 * max(values[0], 1e-300):
            component = components[number]
            scores = x @ component * np.sign(component[np.abs(component).argmax()])
            colours[:, number] = (scores - scores.min()) / (scores.max() - scores.min())
            explained[number] = values[number] ** 2 / (values**2).sum()
    return colours, explained


# More patches than dimensions, fewer, as many as make two components, and one.
@pytest.mark.parametrize("grid", [(9, 7), (3, 5), (1, 3), (1, 1)])
def test_colours_of_one_image(grid):
    tokens = torch.randn(*grid, 48)
    found = colours_of(tokens, Grid(*grid))
    expected, _ = written_out(tokens.reshape(-1, 48).double().numpy())
    np.testing.assert_allclose(found.reshape(-1, 3), expected, atol=1e-5)
    np.testing.assert_array_equal(found, colours_of(tokens.reshape(-1, 48), Grid(*grid)))
    assert found.shape == (*grid, 3)
    assert found.min() >= 0
    assert found.max() <= 1
    if grid == (1, 3):
        # Three places are a plane: two components.
        assert (found[..., 2] == 0.5).all()
        assert found[..., :2].std() > 0.1


@cases.models
@pytest.mark.parametrize("layer", [None, -1, 1])
@pytest.mark.parametrize("shown", ["plain", "a list of one", "batch after batch"])
def test_each_image_apart(shown, layer, options):
    model = cases.model(**options)
    given = cases.SHOWN[shown](model)
    found = patch_colours(model, given, layer=layer)
    expected = cases.layers_of(model, given)
    assert len(found["colours"]) == len(expected) > 0
    for number, (layers, normed, grid, _) in enumerate(expected):
        tokens = normed if layer is None else layers[layer + 1]
        colours, explained = written_out(tokens[model.num_prefix_tokens :].numpy())
        np.testing.assert_allclose(found["colours"][number], colours.reshape(*grid, 3), atol=1e-5)
        np.testing.assert_allclose(found["explained"][number], explained, atol=1e-5)


@pytest.mark.parametrize("fit", ["image", "size"])
@pytest.mark.parametrize("by_rows", [False, True])
def test_dropped_patches_have_none(fit, by_rows):
    model, kept = cases.model(), [[0, 3, 4, 7, 14], [14, 1, 2, 9, 5]]
    shown = cases.images((3, 5), (3, 5))
    batch = cases.dropped_by_rows(model, torch.stack(shown), kept) if by_rows else cases.dropped(model, shown, kept)
    given = {NATIVE: [batch]}
    found = patch_colours(model, given, fit=fit)["colours"].reshape(2, 15, 3)
    tokens = [normed[model.num_prefix_tokens :].numpy() for _, normed, _, _ in cases.layers_of(model, given)]
    expected = [written_out(one)[0] for one in tokens]
    if fit == "size":
        expected = np.split(written_out(np.concatenate(tokens))[0], [5])
    for number, some in enumerate(kept):
        np.testing.assert_allclose(found[number, some], expected[number], atol=1e-5)
        assert np.isnan(np.delete(found[number], some, axis=0)).all()
