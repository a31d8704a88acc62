"""What is said of a picture follows what was done to it: masks, boxes, labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.crops import RandomResizedCrop, apply_crop
from sightline.data.source import Example
from sightline.data.sources.scenes import Scenes
from sightline.data.targets import Crop, Objects, Pixels, Target


def mask_of(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 25, (height, width)).astype(np.uint8)


def painted(mask):
    """A picture whose every channel says ten times what the mask says."""
    return np.repeat(10 * mask[..., None], 3, axis=2)


@pytest.mark.parametrize("image_size", [(32, 32), (20, 45), (3, 2), (1, 1)])
def test_what_is_reflected_is_so_in_masks_too(image_size):
    """By the simple crop, of pictures of any shape."""
    for index, (height, width) in enumerate([(60, 90), (90, 60), (7, 200), (300, 5), (1, 9), (32, 32), (20, 45)]):
        mask = mask_of(height, width, index)
        for flip in (0.0, 1.0):
            transform = RandomResizedCrop(train_crop_mode="simple", flip=flip)
            crop = transform.train_crop((height, width), image_size, seed=5, epoch=0, index=index)
            moved = Pixels(mask).transform(crop).pixels
            assert moved.shape == image_size
            assert (apply_crop(painted(mask), crop, "nearest") == painted(moved)).all()


def test_an_example_s_target_moves_with_its_picture():
    """What a source shows is one crop, of the picture and of what is said of it."""

    class Regions(Target):
        def __init__(self, mask):
            self.mask = mask

        def transform(self, crop):
            return Regions(crop.apply_to_map(self.mask))

    mask = mask_of(48, 64)
    source = Scenes().with_view(parts=0.3)
    source.transform = replace(source.transform, interpolation="nearest", crop=0.875)
    for split in ("train", "test"):
        stored = Example(painted(mask), Regions(mask), "a", {})
        shown = source.shown(stored, split, 5, (32, 24), seed=1, epoch=2)
        assert shown.image.shape == (32, 24, 3)
        assert (shown.image == painted(shown.target.mask)).all()
        assert (stored.target.mask == mask).all()


def crops():
    """Parts of a picture of 24 x 40 pixels, anywhere and at any size."""

    def crop(top, left, rows, cols, height, width, mirrored):
        box = (top * (24 - rows), left * (40 - cols), top * (24 - rows) + rows, left * (40 - cols) + cols)
        return Crop(box, (height, width), mirrored)

    share, side = st.floats(0, 1), st.integers(1, 50)
    return st.builds(crop, share, share, st.floats(2, 24), st.floats(2, 40), side, side, st.booleans())


@given(crops(), st.integers(0, 99))
def test_classes_of_pixels_follow_the_picture(crop, seed):
    mask = mask_of(24, 40, seed)
    moved = Pixels(mask).transform(crop).pixels
    assert (apply_crop(painted(mask), crop, "nearest") == painted(moved)).all()
    # Where answers are measured, nothing is lost of what is shown.
    rows, cols = crop.region
    kept = Pixels(mask).for_evaluation(crop).pixels
    assert (kept == mask[rows, cols]).all()
    assert abs(kept.shape[0] - (crop.box[2] - crop.box[0])) <= 1
    assert abs(kept.shape[1] - (crop.box[3] - crop.box[1])) <= 1


def objects_of(boxes, size=(24, 40)):
    boxes = np.array(boxes, float).reshape(-1, 4)
    masks = np.zeros((len(boxes), *size), bool)
    for mask, (y0, x0, y1, x1) in zip(masks, boxes.astype(int), strict=True):
        mask[y0:y1, x0:x1] = True
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return Objects(boxes, np.arange(len(boxes)), size, np.zeros(len(boxes), bool), areas, masks)


@given(crops(), st.integers(0, 99))
def test_objects_follow_the_picture(crop, seed):
    draw = np.random.default_rng(seed)
    corners = np.sort(draw.integers(0, 24, (3, 2, 2)), axis=1)
    before = objects_of([[y0, x0, y1 + 1, x1 + 1] for (y0, x0), (y1, x1) in corners])
    for after in (before.transform(crop), before.for_evaluation(crop)):
        assert len(after.boxes) == 3
        assert (after.boxes[:, :2] >= 0).all()
        assert (after.boxes[:, 2:] <= after.size).all()
        assert (after.boxes[:, :2] <= after.boxes[:, 2:]).all()
        assert after.masks.shape == (3, *after.size)
        assert np.allclose(after.areas, (after.boxes[:, 2:] - after.boxes[:, :2]).prod(axis=1))
        for box, mask in zip(after.boxes, after.masks, strict=True):
            rows, cols = np.nonzero(mask)
            if len(rows):
                # A pixel belongs to what its centre lies in.
                assert np.abs(box - (rows.min(), cols.min(), rows.max() + 1, cols.max() + 1)).max() <= 0.5 + 1e-9
