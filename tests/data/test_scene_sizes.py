"""Masks and boxes of scenes agree with each other, and across sizes: as properties, of scenes of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sightline.data.scenes.draw import SPLITS
from sightline.data.sources.scenes import Scenes, SceneTarget

KINDS = sorted((task, split) for task, splits in SPLITS.items() for split in splits)
SIDES = st.integers(7, 40)
# A scene has no simpler one: to look for it would take minutes.
drawn = settings(max_examples=30, phases=[Phase.generate])


def seen(task: str, split: str, index: int, size: tuple[int, int]) -> SceneTarget:
    target = Scenes(task).example(split, index, size).target
    assert isinstance(target, SceneTarget)
    return target


@pytest.mark.parametrize(("task", "split"), KINDS)
@drawn
@given(index=st.integers(0, 1999), size=st.tuples(SIDES, SIDES), times=st.integers(2, 5))
def test_boxes_and_masks_grow_with_the_image(
    task: str, split: str, index: int, size: tuple[int, int], times: int
) -> None:
    if task == "search":
        # What scales its lengths grows to 32 pixels and no further.
        size, times = (7 + size[0] % 4, 7 + size[1] % 4), 3
    large = size[0] * times, size[1] * times
    one, many = (seen(task, split, index, each) for each in (size, large))
    assert np.allclose(one.objects.boxes * times, many.objects.boxes, rtol=0, atol=1e-9 * max(large))
    assert (one.objects.labels == many.objects.labels).all()
    # What a pixel is covered of is the mean of those in its place.
    finer = many.seen.masks.reshape(-1, size[0], times, size[1], times).mean(axis=(2, 4))
    assert np.abs(finer - one.seen.masks).max() < 1e-6
    assert np.allclose(one.objects.areas * times**2, many.objects.areas, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("task", "split"), KINDS)
@drawn
@given(index=st.integers(0, 1999), size=st.tuples(SIDES, SIDES), times=st.integers(1, 5))
def test_a_box_is_that_of_its_mask(task: str, split: str, index: int, size: tuple[int, int], times: int) -> None:
    """The pixels that it touches are those from the first to the last that the object covers."""
    shown = seen(task, split, index, (size[0] * times, size[1] * times))
    objects = shown.objects
    assert objects.masks is not None
    for box, cover, mask in zip(objects.boxes, shown.seen.masks, objects.masks, strict=True):
        assert (box[:2] >= 0).all()
        assert (box[2:] <= objects.size).all()
        rows, cols = np.nonzero(cover)
        least, most = np.array([rows.min(), cols.min()]), np.array([rows.max(), cols.max()]) + 1
        assert (least >= np.floor(box[:2] + 1e-6)).all()
        assert (most <= np.ceil(box[2:] - 1e-6)).all()
        # Of a tip that reaches less far into a pixel, next to nothing is covered.
        assert (least <= np.floor(box[:2] + 0.05)).all()
        assert (most >= np.ceil(box[2:] - 0.05)).all()
        # The boolean mask is of the pixels of which half is covered.
        assert (mask == (cover >= 0.5)).all()
        assert abs(mask.sum() - cover.sum()) <= ((cover > 0) & (cover < 1)).sum() / 2


@pytest.mark.parametrize("split", SPLITS["search"])
@drawn
@given(index=st.integers(0, 1999), size=st.tuples(st.integers(32, 64), st.integers(32, 64)), times=st.integers(2, 4))
def test_objects_of_search_stay_as_large_in_pixels(split: str, index: int, size: tuple[int, int], times: int) -> None:
    one, many = (seen("search", split, index, (size[0] * each, size[1] * each)).objects for each in (1, times))
    assert np.allclose(one.boxes[:, 2:] - one.boxes[:, :2], many.boxes[:, 2:] - many.boxes[:, :2])
    assert np.allclose(one.areas, many.areas, rtol=5e-3, atol=0.5)
