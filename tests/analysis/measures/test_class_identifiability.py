"""Class identifiability equals its definition, by sorting; 1 and 0 at the ends, ties in the middle."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.analysis import class_identifiability
from sightline.analysis.measures.classes import identifiability
from sightline.analysis.measures.logit_lens import lens, pooled_logits
from tests.analysis.saying import POOLS, batch_of, layers_of, some_images, tiny


def test_the_ends_and_ties():
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0]])
    found = identifiability(logits.expand(5, -1), torch.arange(5))
    assert found.tolist() == [1, 0.75, 0.5, 0.25, 0]
    # All alike: the mean of all ranks; two alike at the top: of 0 and 1.
    assert identifiability(torch.zeros(1, 5), torch.tensor([2])).tolist() == [0.5]
    assert identifiability(torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([0])).tolist() == [0.75]
    assert identifiability(torch.tensor([[5.0]]), torch.tensor([0])).tolist() == [1]
    assert identifiability(torch.tensor([[torch.nan, 1.0]]), torch.tensor([0])).isnan().all()


def written_out(logits: np.ndarray, label: int) -> float:
    """The place in the sorted list, mean of equal ones."""
    order = sorted(logits, reverse=True)
    places = [place for place, value in enumerate(order) if value == logits[label]]
    return 1 - np.mean(places) / (len(logits) - 1)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", POOLS)
def test_by_its_definition(options, packed):
    model, labels = tiny("lookhere_90", heads=12, dim=48, **options), [4, 0]
    images = some_images((12, 20), (8, 4) if packed else (12, 20))
    images = images if packed else torch.stack(images)
    batch = batch_of(model, images, labels)
    found = class_identifiability(model, {(0, 0): [batch]})
    kept = layers_of(model, images)
    assert found["class_token"].shape == found["patches"].shape == (2, 2)
    for layer in range(2):
        tokens, layout = kept[layer]
        with torch.no_grad():
            pooled, each = pooled_logits(model, tokens, layout).numpy(), lens(model, tokens, layout)
        own = [one[0] for one in layout.split(each)] if packed else list(each)
        for image, label in enumerate(labels):
            patches = own[image][model.num_prefix_tokens :].numpy()
            expected = np.mean([written_out(one, label) for one in patches])
            assert found["patches"][image, layer] == pytest.approx(expected, abs=1e-5)
            assert found["class_token"][image, layer] == pytest.approx(written_out(pooled[image], label), abs=1e-5)
    assert found["patches"].std() > 0.01
