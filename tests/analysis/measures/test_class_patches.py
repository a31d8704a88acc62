"""Patches on the object equal their definition, pixel by pixel; images without a kind count nowhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.analysis import class_patches
from sightline.analysis.measures.classes import ClassPatches, identifiability
from sightline.analysis.measures.logit_lens import lens
from tests.analysis.saying import CLASSES, batch_of, layers_of, outright, random_masks, some_images, tiny, tokens_saying


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", [{}, {"pool": "attention"}, {"pool": "mean", "num_registers": 2}])
def test_by_its_definition(options, packed):
    model, labels = tiny(**options), [4, 0]
    images = some_images((12, 20), (8, 16) if packed else (12, 20))
    # Two classes, the background and unsaid pixels, so that each kind of patch is there.
    kinds = [(label, one) for label, one in zip(labels, random_masks(images), strict=True)]
    masks = [np.where(one > 2, label, np.minimum(one, 5 - label)) for label, one in kinds]
    images = images if packed else torch.stack(images)
    found = class_patches(model, {(0, 0): [batch_of(model, images, labels, masks)]})
    kept = layers_of(model, images)
    for image, (mask, label) in enumerate(zip(masks, labels, strict=True)):
        kinds = []
        for y in range(0, mask.shape[0], 4):
            for x in range(0, mask.shape[1], 4):
                patch = mask[y : y + 4, x : x + 4]
                said = (patch != -2).sum()
                kinds.append(None if said == 0 else (patch == label).sum() > said / 2)
        for layer in range(2):
            tokens, layout = kept[layer]
            with torch.no_grad():
                logits = lens(model, tokens, layout)
            own = layout.split(logits)[image][0] if packed else logits[image]
            each = identifiability(own, torch.full((len(own),), label)).numpy()[model.num_prefix_tokens :]
            for name, kind in (("on_object", True), ("off_object", False)):
                expected = np.mean([one for one, is_kind in zip(each, kinds, strict=True) if is_kind == kind])
                assert found[name][image, layer] == pytest.approx(expected, abs=1e-5)
        assert found["patches_on"][image] == kinds.count(True) > 0
        assert found["patches_off"][image] == kinds.count(False) > 0


def test_half_of_a_patch_is_not_more_than_half():
    model = outright()
    mask = np.full((8, 12), -1)
    mask[:4, :2] = 2  # half of the first patch
    mask[:4, 4:7] = 2  # three quarters of the second
    mask[4:, :4] = -2  # nothing is said of the fourth
    mask[4:, 4:6], mask[4:, 6:8] = -2, 2  # all that is said of the fifth
    measure = ClassPatches(model)
    batch = batch_of(model, some_images((8, 12)), [2], [mask])
    measure.begin(batch)
    # The class token and the patches: those on the object say it, the others say another.
    tokens = tokens_saying([0, 0, 2, 0, 5, 2, 0])
    for layer in range(2):
        measure.tokens(layer, tokens, batch.layout)
    found = measure.arrays()
    assert found["patches_on"].tolist() == [2]
    assert found["patches_off"].tolist() == [3]
    assert found["on_object"].tolist() == [[1, 1]]
    # The second of 6 classes that are all alike but for one above.
    np.testing.assert_allclose(found["off_object"], 1 - 3 / (CLASSES - 1))
