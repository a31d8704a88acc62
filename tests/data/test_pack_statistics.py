"""How a data set packs, counted without reading a pixel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sightline.data.open import open_source
from sightline.data.pack_plan import displayed_size, histogram, pack_statistics
from sightline.data.sizes import ConstantDrop, ResolutionSampling, SizeSampler
from sightline.errors import InputError

PAPER = ResolutionSampling(64, 256)


@pytest.mark.parametrize("how", ["best_fit", "first_fit"])
def test_the_papers_sampling_leaves_little_room(how):
    """Less than a hundredth of a budget unspent, and less than two of a fixed length padded."""
    found = pack_statistics(open_source("scenes"), "train", SizeSampler(16, PAPER), capacity=1024, how=how, images=8000)
    assert found.images == 8000 == sum(images for _, images in found.sequences)
    assert found.tokens == sum(found.lengths) == sum(tokens for tokens, _ in found.sequences)
    assert found.unused < (0.01 if how == "best_fit" else 0.02)
    assert found.padding_factor == pytest.approx(max(found.lengths) / np.mean(found.lengths))


def test_dropped_tokens_are_counted():
    sampler = SizeSampler(16, PAPER, ConstantDrop(0.5))
    found = pack_statistics(open_source("digits"), "test", sampler, capacity=512)
    assert found.images == 300
    assert found.tokens == pytest.approx(found.patches / 2, rel=0.02)


def test_photographs_have_their_own_sizes(tmp_path):
    sizes = [(48, 96), (96, 48), (200, 20)]
    for number, (height, width) in enumerate(sizes):
        folder = tmp_path / "train" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(folder / f"{number}.png")
    source = open_source(f"imagefolder:{tmp_path}")
    assert sorted(displayed_size(source, "train", index, 0) for index in range(3)) == sorted(sizes)
    found = pack_statistics(source, "train", SizeSampler(16), capacity=64)
    assert sorted(found.lengths) == sorted([3 * 6, 6 * 3, 13 * 1])
    with pytest.raises(InputError, match=r"18 .*17"):
        pack_statistics(source, "train", SizeSampler(16), capacity=17)
    with pytest.raises(InputError, match="index 3"):
        source.stored_size("train", 3)


@given(values=st.lists(st.integers(1, 500), min_size=1), bins=st.integers(1, 20))
def test_a_histogram_counts_each_value_once(values, bins):
    found = histogram(values, bins)
    assert len(found) <= bins
    assert (found[0][0], found[-1][1]) == (min(values), max(values))
    for (low, high, count), following in zip(found, [*found[1:], None], strict=True):
        assert count == sum(low <= value <= high for value in values)
        assert following is None or following[0] == high + 1
