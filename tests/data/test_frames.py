"""Which frames of a clip are shown."""

from __future__ import annotations

import numpy as np
import pytest

from sightline.data.frames import FrameSampling


def test_frames_lie_in_the_middle_of_equal_spans() -> None:
    assert FrameSampling(4).positions(8).tolist() == [1, 3, 5, 7]
    assert FrameSampling(4).positions(10).tolist() == [1, 3, 6, 8]
    assert FrameSampling(1).positions(9).tolist() == [4]


@pytest.mark.parametrize("stored", [1, 2, 3, 7, 16, 1000])
@pytest.mark.parametrize("count", [1, 2, 5, 16])
@pytest.mark.parametrize("stride", [None, 1, 3])
@pytest.mark.parametrize("exact", [True, False])
def test_places_are_there_and_rise(stored: int, count: int, stride: int | None, exact: bool) -> None:
    sampling = FrameSampling(count, stride, exact)
    for share in (0.0, 0.31, 0.5, 1 - 2**-53):
        places = sampling.positions(stored, share)
        assert places.dtype == np.int64
        assert len(places) == sampling.frame_count(stored)
        assert 0 <= places.min() <= places.max() < stored
        assert (np.diff(places) >= (0 if exact else 1)).all()


def test_a_short_clip_repeats_frames_or_shows_those_that_it_has() -> None:
    assert FrameSampling(6).positions(3).tolist() == [0, 0, 1, 1, 2, 2]
    assert FrameSampling(6, exact=False).positions(3).tolist() == [0, 1, 2]
    assert FrameSampling(4, 2).positions(3).tolist() == [0, 2, 2, 2]
    assert FrameSampling(4, 2, exact=False).positions(3).tolist() == [0, 2]
    assert FrameSampling(4, exact=False).positions(1).tolist() == [0]


def test_a_stride_takes_the_middle_part_and_draws_its_begin() -> None:
    sampling = FrameSampling(3, 2)
    assert sampling.positions(11).tolist() == [3, 5, 7]
    begins = {int(sampling.draw(11, seed=0, epoch=epoch, index=5)[0]) for epoch in range(200)}
    assert begins == set(range(7))
