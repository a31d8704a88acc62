"""Packing: every image once, no sequence too long, and little room unused; and fixed lengths for compilers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.packing import PACKERS, best_fit, bucket_lengths, first_fit, pack_window, padding_share
from sightline.errors import InputError
from tests.batches import pack_stream

LENGTHS = st.lists(st.integers(1, 40), max_size=60)


@given(lengths=LENGTHS, most=st.one_of(st.none(), st.integers(1, 5)))
def test_first_fit_is_the_plain_one(lengths, most):
    """Written out: each image goes into the first sequence that has room, in its order."""
    plain: list[list[int]] = []
    for image, length in enumerate(lengths):
        for images in plain:
            if sum(lengths[one] for one in images) + length <= 40 and len(images) != most:
                images.append(image)
                break
        else:
            plain.append([image])
    assert first_fit(lengths, 40, most) == plain


@given(lengths=LENGTHS)
def test_best_fit_leaves_the_least_room_at_each_step(lengths):
    plain: list[list[int]] = []
    for image in sorted(range(len(lengths)), key=lambda one: (-lengths[one], one)):
        rooms = [40 - sum(lengths[one] for one in images) for images in plain]
        fitting = [place for place, room in enumerate(rooms) if room >= lengths[image]]
        if fitting:
            plain[min(fitting, key=lambda place: (rooms[place], place))].append(image)
        else:
            plain.append([image])
    assert best_fit(lengths, 40) == plain


@pytest.mark.parametrize("how", sorted(PACKERS))
def test_an_image_longer_than_a_sequence_is_named(how):
    with pytest.raises(InputError, match="image 1"):
        pack_window(dict(enumerate([3, 11, 2])), 10, how=how)


@given(
    lengths=LENGTHS, most=st.one_of(st.none(), st.integers(1, 5)), how=st.sampled_from(sorted(PACKERS)),
    look_ahead=st.integers(1, 20),
)  # fmt: skip
def test_a_stream_loses_nothing(lengths, most, how, look_ahead):
    found = list(pack_stream(iter(lengths), 40, how=how, most_images=most, look_ahead=look_ahead))
    together = [one for images in found for one in images]
    assert sorted(together) == list(enumerate(lengths))
    for images in found:
        assert sum(length for _, length in images) <= 40
        assert most is None or len(images) <= most


@given(packs=st.lists(st.integers(1, 30), min_size=1, max_size=12), count=st.integers(1, 5))
def test_no_lengths_waste_less(packs, count):
    """Against every choice of as many of the packs' lengths."""
    lengths = bucket_lengths(iter(packs), count)
    different = sorted(set(packs))
    assert list(lengths) == sorted(set(lengths))
    assert len(lengths) == min(count, len(different))
    assert lengths[-1] == max(packs)
    others = itertools.combinations(different[:-1], len(lengths) - 1)
    least = min(padding_share(packs, (*other, different[-1])) for other in others)
    assert padding_share(packs, lengths) == pytest.approx(least, abs=1e-12)
