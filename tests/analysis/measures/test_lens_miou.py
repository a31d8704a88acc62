"""The lens's mIoU equals its definition, pixel by pixel; 1 where patches say what their pixels are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.analysis import lens_miou
from sightline.analysis.measures.logit_lens import LensMiou, lens
from tests.analysis.saying import batch_of, layers_of, outright, random_masks, some_images, tiny, tokens_saying


def written_out(true: np.ndarray, said: np.ndarray) -> float:
    """Of labelled pixels: the mean over the classes that are there."""
    said, true = said[true >= 0], true[true >= 0]
    ious = [((said == one) & (true == one)).sum() / ((said == one) | (true == one)).sum() for one in np.unique(true)]
    return float(np.mean(ious))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", [{}, {"pool": "attention"}, {"pool": "mean", "num_registers": 2}])
def test_by_its_definition(options, packed):
    model = tiny(**options)
    images = some_images((12, 20), (8, 16) if packed else (12, 20))
    masks = random_masks(images)
    images = images if packed else torch.stack(images)
    found = lens_miou(model, {(0, 0): [batch_of(model, images, [0, 0], masks)]})
    kept = layers_of(model, images)
    for layer in range(2):
        tokens, layout = kept[layer]
        with torch.no_grad():
            logits = lens(model, tokens, layout)
        own = [one[0] for one in layout.split(logits)] if packed else list(logits)
        said = []
        for one, mask in zip(own, masks, strict=True):
            top = one[model.num_prefix_tokens :].argmax(-1).numpy().reshape(mask.shape[0] // 4, -1)
            said.append(top.repeat(4, 0).repeat(4, 1))
        for image, (mask, one) in enumerate(zip(masks, said, strict=True)):
            assert found["image_miou"][image, layer] == pytest.approx(written_out(mask, one), abs=1e-5)
        true, all_said = (np.concatenate([one.ravel() for one in some]) for some in (masks, said))
        assert found["miou"][layer] == pytest.approx(written_out(true, all_said), abs=1e-5)
        right = (true == all_said)[true >= 0].mean()
        assert found["pixel_accuracy"][layer] == pytest.approx(right, abs=1e-5)
        assert found["miou_low"][layer] <= found["miou"][layer] <= found["miou_high"][layer]
    assert found["pixels"].tolist() == [int((one >= 0).sum()) for one in masks]


def shown(model, masks, says, classes=None):
    """What the measure finds where the patches of images of 8 x 12 px say these."""
    measure = LensMiou(model)
    for mask, one in zip(masks, says, strict=True):
        batch = batch_of(model, some_images((8, 12)), [0], [mask])
        if classes is not None:
            batch.targets["pixel_classes"] = torch.tensor(classes)
        measure.begin(batch)
        for layer in (-1, 0, 1):
            measure.tokens(layer, tokens_saying([0, *one]), batch.layout)
    return measure.arrays()


def patches(*classes):
    return np.array(classes).reshape(2, 3).repeat(4, 0).repeat(4, 1)


def test_patches_that_say_what_their_pixels_are():
    said = [(1, 2, 3, 4, 5, 0), (1, 1, 1, 2, 2, 2)]
    found = shown(outright(), [patches(*one) for one in said], said)
    for name in ("miou", "miou_low", "miou_high", "pixel_accuracy"):
        assert found[name].tolist() == [1, 1]
    assert found["image_miou"].tolist() == [[1, 1], [1, 1]]
    wrong = shown(outright(), [patches(*one) for one in said], [(2, 3, 4, 5, 0, 1), (2, 2, 2, 1, 1, 1)])
    assert wrong["miou"].tolist() == [0, 0]


def test_the_interval_is_that_of_resampled_images():
    """Images that differ: as wide as the deviation of their mean says."""
    draws = np.random.default_rng(0)
    masks, says = [patches(*[1] * 6)] * 60, draws.choice([1, 2], (60, 6), p=[0.7, 0.3]).tolist()
    found = shown(outright(), masks, says)
    each = (np.array(says) == 1).mean(axis=1)
    assert found["miou"][0] == pytest.approx(each.mean())
    reach = 1.96 * each.std() / 60**0.5
    assert found["miou_high"][0] - found["miou"][0] == pytest.approx(reach, rel=0.2)
    assert found["miou"][0] - found["miou_low"][0] == pytest.approx(reach, rel=0.2)
