"""What is refused, and in which words; and the empty cases that are not errors."""

from __future__ import annotations

import math

import pytest
import torch

from sightline.errors import InputError
from sightline.models import create_model

SMALL = {"num_classes": 5, "dim": 48, "depth": 1, "image_size": 16}


@pytest.mark.parametrize(
    ("call", "match"),
    [
        ({"name": "vit_bas_patch16"}, "did you mean 'vit_base_patch16'"),
        ({"name": "resnet50"}, "vit_micro_patch4"),
        ({"encoding": "lookhere_9"}, "did you mean 'lookhere_90'"),
        ({"encoding_options": {"theta": 3.0}}, "option 'theta'"),
        ({"encoding": "rope_axial", "encoding_options": {"tetha": 3.0}}, "did you mean 'theta'"),
        ({"drop_pth": 0.1}, "did you mean 'drop_path'"),
        ({"pool": "avg"}, "one of cls, mean, attention, query, first"),
        ({"pool": "mena"}, "did you mean 'mean'"),
        ({"interpolation": "bicubik"}, "did you mean 'bicubic'"),
        ({"class_token": False}, "needs a CLS token"),
        ({"class_token": "yes"}, "true or false"),
        ({"dim": 50}, "divisible by heads 12"),
        ({"dim": 48.0}, "whole number"),
        ({"depth": 0}, "at least 1"),
        ({"num_classes": "5"}, "whole number"),
        ({"drop_path": 1.5}, "less than 1"),
        ({"mlp_ratio": 0.001}, "mlp_ratio"),
        ({"norm_eps": math.nan}, "finite"),
        ({"mean": (0.5, 0.5)}, "three numbers"),
        ({"image_size": 30}, "nearest to 30: 28 or 32"),
        ({"image_size": (16, 0)}, r"image_size\[1\] = 0"),
        ({"image_size": None, "fit": "pad"}, "image_size = null"),
        ({"encoding": "rope_axial", "heads": 24}, "head_dim 2"),
        ({"encoding": "lookhere", "encoding_options": {"directions": "halves-diagonals-none"}, "heads": 6}, "6 heads"),
    ],
)
def test_wrong_configurations(call: dict, match: str) -> None:
    with pytest.raises(InputError, match=match) as raised:
        create_model(**{"name": "vit_micro_patch4", **SMALL, **call})
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


@pytest.fixture(scope="module")
def model():
    return create_model("vit_micro_patch4", encoding="learned_1d", **SMALL).eval()


@pytest.mark.parametrize(
    ("images", "match"),
    [
        (lambda: torch.rand(1, 3, 33, 32), "nearest: 32x32, 36x32"),
        (lambda: torch.rand(1, 3, 3, 3), "nearest: 4x4"),
        (lambda: torch.rand(1, 3, 0, 8), "at least 1"),
        (lambda: torch.rand(3, 16, 16), "batch, channels, height, width"),
        (lambda: torch.rand(1, 1, 3, 16, 16), "batch, channels, height, width"),
        (lambda: torch.rand(16, 16), "batch, channels, height, width"),
        (lambda: torch.rand(1, 1, 16, 16), "3 channels"),
        (lambda: torch.rand(1, 16, 16, 3), "3 channels"),
        (lambda: torch.zeros(1, 3, 16, 16, dtype=torch.uint8), "uint8"),
        (lambda: torch.zeros(1, 3, 16, 16, dtype=torch.int64), "int64"),
        (lambda: torch.zeros(1, 3, 16, 16, dtype=torch.bool), "bool"),
        (lambda: [torch.rand(3, 16, 16), torch.rand(3, 17, 16)], "17x16"),
        (lambda: [torch.rand(3, 16, 16), torch.rand(1, 3, 16, 16)], "image 1"),
        (lambda: [torch.rand(3, 16, 16), torch.rand(16, 16)], "image 1"),
        (lambda: [torch.rand(4, 16, 16)], "image 0"),
        (lambda: [torch.rand(3, 16, 16), None], "image 1.*NoneType"),
        (lambda: [torch.zeros(3, 16, 16, dtype=torch.uint8)], "image 0"),
        (lambda: None, "NoneType"),
        (lambda: torch.zeros(3, 16, 16).numpy(), "ndarray|image 0"),
        (lambda: "cat.jpg", "str"),
    ],
)
def test_wrong_images(model, images, match: str) -> None:
    for call in (model, model.forward_features, model.forward_intermediates):
        with pytest.raises(InputError, match=match):
            call(images())


@pytest.mark.parametrize("fit", ["pad", "resize"])
def test_sizes_that_do_not_divide(fit: str, randomise) -> None:
    model = randomise(create_model("vit_micro_patch4", fit=fit, **SMALL)).eval()
    images = [torch.rand(3, 5, 11), torch.rand(3, 1, 50), torch.rand(3, 16, 16)]
    with torch.no_grad():
        together = model(images)
        alone = torch.cat([model(image[None]) for image in images])
    assert together.isfinite().all()
    assert (together - alone).abs().max() < 2e-5
    features = model.forward_features(images)
    cells = {"pad": [2 * 3, 1 * 13, 16], "resize": [1 * 3, 1 * 12, 16]}[fit]
    assert [len(one) - 1 for one in features] == cells
