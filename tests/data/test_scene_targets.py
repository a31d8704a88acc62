"""What scenes say of their pixels and objects is what they show, at any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sightline.data.scenes.draw import SPLITS
from sightline.data.sources.scenes import Scenes


def test_a_pixel_is_what_covers_most_of_it():
    source = Scenes("many")
    overlaps = 0
    for index in range(40):
        said = source.example("test", index, (48, 48)).target
        seen, last = said.seen, np.zeros((48, 48), int)
        for mask, thing in zip(seen.masks, said.things, strict=True):
            last[mask == 1] = thing + 1
            overlaps += int((last[mask == 1] > 0).sum())
        whole = ((seen.masks == 0) | (seen.masks == 1)).all(axis=0)
        # The later object is drawn over the earlier one.
        assert (said.pixels[whole] == last[whole]).all()
        assert (said.pixels[seen.masks.max(axis=0) < 0.25] == 0).mean() > 0.99
        half = said.objects.masks.any(axis=0)
        assert (said.pixels[half] > 0).all()
    assert overlaps


def test_parts_of_scenes_in_training_say_what_they_show():
    source, seen = Scenes("many").with_view(parts=0.3), 0
    for index in range(12):
        said = source.example("train", index, (40, 56), seed=1).target
        assert said.pixels.shape == (40, 56)
        assert said.objects.size == (40, 56)
        for box, mask in zip(said.objects.boxes, said.objects.masks, strict=True):
            rows, cols = np.nonzero(mask)
            # Of an object that is cut, the box is cut: what is left of it may be an empty corner.
            if (box[:2] > 0).all() and (box[2:] < (40, 56)).all():
                seen += 1
                assert np.abs(box - (rows.min(), cols.min(), rows.max() + 1, cols.max() + 1)).max() <= 1.5
    assert seen > 8


@pytest.mark.parametrize(("task", "split"), [(task, split) for task, splits in SPLITS.items() for split in splits])
@settings(max_examples=30, phases=[Phase.generate])
@given(index=st.integers(0, 1999), size=st.tuples(st.integers(7, 160), st.integers(7, 160)))
def test_a_box_is_that_of_its_mask(task: str, split: str, index: int, size: tuple[int, int]) -> None:
    """The pixels that it touches are those from the first to the last that the object covers."""
    shown = Scenes(task).example(split, index, size).target
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
