"""Moving scenes: one frame does not tell, speeds are those of a camera, and all is of seed and index alone."""

from __future__ import annotations

import numpy as np
import pytest

from sightline.data.open import open_source
from sightline.data.scenes.draw import draw
from sightline.data.scenes.render import render, render_moving
from sightline.data.sizes import FrameSampling
from sightline.data.sources.moving import DIRECTIONS


def shown(count: int, stride: int | None = None, size: tuple[int, int] = (32, 32)):
    source = open_source("moving").with_view(frames=FrameSampling(count, stride))
    return lambda split, index, **given: source.example(split, index, size, **given)


def test_a_longer_clip_begins_with_the_shorter_one_and_a_stride_takes_its_frames() -> None:
    for index in range(4):
        longest = shown(9)("train", index, seed=3).image
        assert longest.shape == (9, 32, 32, 3)
        assert np.array_equal(shown(4)("train", index, seed=3).image, longest[:4])
        assert np.array_equal(shown(3, 4)("train", index, seed=3).image, longest[::4])
        assert np.array_equal(open_source("moving").example("train", index, (32, 32), seed=3).image, longest[0])


def places_of(count: int, indices: range) -> tuple[np.ndarray, np.ndarray]:
    """Where the glyph stands in each frame, in shares of the image, by what moves; and the labels."""
    from sightline.data.sources import moving

    places, labels = [], []

    def noted(scene, image_size, at):
        places.append(at / image_size)
        return np.zeros((len(at), *image_size, 3), np.uint8)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "render_moving", noted)
        make = shown(count)
        labels = [make("train", index).target.label for index in indices]
    return np.array(places), np.array(labels)


def test_one_frame_says_nothing_of_the_class_and_two_say_it() -> None:
    places, labels = places_of(6, range(4000))
    angles = labels * 2 * np.pi / len(DIRECTIONS)
    step = np.diff(places, axis=1)
    direction = np.arctan2(step[..., 0], step[..., 1])
    apart = np.angle(np.exp(1j * (direction - angles[:, None])))
    assert np.abs(apart).max() <= np.radians(12) + 1e-9
    assert np.bincount(labels, minlength=8).min() > 400
    # Each frame's place is even over the image, whatever the direction: means of uniform numbers, five deviations.
    for frame in range(6):
        for label in range(len(DIRECTIONS)):
            here = np.mod(places[labels == label, frame], 1)
            assert np.abs(here.mean(axis=0) - 0.5).max() < 5 / np.sqrt(12 * len(here))
            assert np.abs(here.std(axis=0) - 12**-0.5).max() < 0.03


@pytest.mark.parametrize("size", [(24, 40), (40, 24), (31, 31)])
def test_what_stands_where_render_has_it_is_drawn_alike(size: tuple[int, int]) -> None:
    for index in range(6):
        scene = draw("glyphs", "test", index)
        still = render(scene, size)
        (y0, x0, y1, x1) = still.boxes[0]
        centre = np.array([[(y0 + y1) / 2, (x0 + x1) / 2]])
        moving = render_moving(scene, size, centre)[0]
        assert np.abs(moving.astype(int) - still.image).max() <= 1
        # The image has no edges: a whole turn is where it began.
        turned = render_moving(scene, size, centre + np.array([3 * size[0], -size[1]]))[0]
        assert np.abs(turned.astype(int) - moving).max() <= 1
