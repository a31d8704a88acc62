"""Which sizes an image may be prepared at."""

from __future__ import annotations

import numpy as np
import pytest

import sightline
from sightline.errors import InputError


@pytest.fixture
def prepare():
    model = sightline.create_model("vit_micro_patch4", encoding="none", num_classes=2, image_size=16, depth=1)
    return sightline.preprocessing(model)


def test_height_and_width(prepare):
    """They are not exchanged, and the middle is kept."""
    image = np.zeros((40, 40, 3), np.uint8)
    image[8:32] = 255
    assert tuple(prepare(image, (8, 16)).shape) == (3, 8, 16)
    assert prepare.view(image, (8, 16)).min() == 255
    assert prepare.view(image, (16, 8)).min() == 0


@pytest.mark.parametrize("resolution", ["nativ", "384", "", True, 1.5, 0, (0, 3), (3,), (1, 2, 3), {"a": 1}])
def test_what_is_no_resolution(resolution, prepare):
    with pytest.raises(InputError, match="resolution"):
        prepare(np.zeros((4, 4, 3), np.uint8), resolution)
