"""Fixed lengths for compilers: each pack gets the least that holds it, the lengths are the best ones, and the cost is
counted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.packing import bucket_lengths, padded_length, padding_share
from sightline.errors import InputError
from tests.batches import pack_stream


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


@given(lengths=st.lists(st.integers(1, 99), min_size=1, unique=True).map(sorted), data=st.data())
def test_the_least_length_that_holds_a_pack(lengths, data):
    slots = data.draw(st.integers(0, lengths[-1]))
    assert padded_length(slots, lengths) == min(length for length in lengths if length >= slots)


def test_by_hand():
    assert bucket_lengths([3, 9, 10, 4, 10], 2) == (4, 10)
    assert bucket_lengths([3, 9, 10, 4, 10], 1) == (10,)
    assert bucket_lengths([7, 7], 3) == (7,)
    assert padding_share([3, 9, 10, 4, 10], (4, 10)) == pytest.approx(2 / 38)
    assert padding_share([], (4, 10)) == 0


def test_what_is_refused():
    with pytest.raises(InputError, match="bucket count"):
        bucket_lengths([5], 0)
    with pytest.raises(InputError, match="no pack"):
        bucket_lengths([], 2)
    with pytest.raises(InputError, match="pack of 11 slots: the greatest bucket length is 10"):
        padded_length(11, (5, 10))
    with pytest.raises(InputError, match="greatest bucket length is none"):
        padded_length(11, ())


def test_what_they_cost():
    """Packs of 1024 tokens and a CLS token for each image, by the paper's sampling, and images alone, one a row."""
    rng = np.random.default_rng(0)
    tokens = [max(round(side / 16), 1) ** 2 for side in rng.uniform(64, 256, 5000)]
    packs = [sum(length for _, length in images) + len(images) for images in pack_stream(tokens, 1024, how="best_fit")]
    shares = [padding_share(packs, bucket_lengths(packs, count)) for count in (1, 2, 4, 8)]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] < 0.01 < 0.03 < shares[0]
    assert padding_share(tokens, bucket_lengths(tokens, 4)) > 0.1
