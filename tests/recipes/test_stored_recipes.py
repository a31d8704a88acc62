"""Recipes for images with labels: a folder of them, a data set of Hugging Face, tar shards."""

import pytest

from sightline.data.summary import Summary
from sightline.recipes import default_recipe, recipe, supports

SEEN = Summary(10, 50.0, (0.1, 0.2, 0.3), (0.2, 0.2, 0.2), 10)


@pytest.mark.parametrize("data", ["imagefolder:a", "hf:owner/name", "wds:a/train-{0..3}.tar"])
def test_they_have_one_recipe(data):
    found = default_recipe(data, lambda asked: SEEN if asked == data else None)
    assert (found.data, found.model, found.resolution) == (data, "vit_tiny_patch8", 64)
    assert found.model_options == {"mean": SEEN.mean, "std": SEEN.std}
    assert recipe("navit_imagefolder", data).packing is not None
    assert supports("imagefolder", data)
