"""Pictures of rotary frequencies alone, against the definition written out."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch

from sightline.analysis import rope_fourier
from sightline.models import create_model

ROWS, COLS = 6, 10
SIZE = (4 * ROWS, 4 * COLS)


def model(encoding, **options):
    shape = {"image_size": (12, 20), "depth": 2, "dim": 48, "heads": 3} | options
    return create_model("vit_micro_patch4", encoding=encoding, num_classes=5, **shape)


def with_frequencies(pairs):
    """A mixed encoding whose heads all have these (f_x, f_y), repeated to fill the 8 pairs."""
    one = model("rope_mixed")
    values = torch.tensor([pairs[t % len(pairs)] for t in range(8)], dtype=torch.float32)
    with torch.no_grad():
        one.encoding.freqs.copy_(values.T.reshape(2, 1, 1, 8).expand(2, 2, 3, 8))
    return one


def written_out(picture, pairs):
    """The sum over the kept coefficients, term by term."""
    rows, cols = picture.shape
    kept = set()
    for along_x, along_y in pairs:
        k_x, k_y = round(along_x * cols / (2 * math.pi)), round(along_y * rows / (2 * math.pi))
        kept |= {(k_y % rows, k_x % cols), (-k_y % rows, -k_x % cols)}
    cells = [(y, x) for y in range(rows) for x in range(cols)]
    made = np.zeros((rows, cols))
    for k_y, k_x in kept:
        wave = {(y, x): cmath.exp(2j * math.pi * (k_y * y / rows + k_x * x / cols)) for y, x in cells}
        amount = sum(picture[at] * wave[at].conjugate() for at in cells) / (rows * cols)
        for at in cells:
            made[at] += (amount * wave[at]).real
    return made, len(kept) / (rows * cols)


@pytest.mark.parametrize(
    "encoding", ["rope_axial", "rope_mixed", "rope_dinov3", "rope_mixed+rope_axial", "learned_1d+rope_mixed"]
)
@pytest.mark.parametrize("picture", [None, "random"])
def test_it_is_the_sum_of_the_kept_waves(encoding, picture, randomise):
    one = randomise(model(encoding))
    given = None if picture is None else np.random.default_rng(1).normal(size=(ROWS, COLS))
    found = rope_fourier(one, sizes=SIZE, picture=given)
    assert found["frequencies"].shape == (2, 3, 8, 2)
    assert found["reconstruction"].shape == (2, 3, ROWS, COLS)
    expected = np.zeros((ROWS, COLS))
    expected[3, 5] = 1
    expected = expected if given is None else given
    np.testing.assert_allclose(found["picture"], expected, rtol=1e-6)
    for layer in range(2):
        for head in range(3):
            made, kept = written_out(expected, found["frequencies"][layer, head].tolist())
            np.testing.assert_allclose(found["reconstruction"][layer, head], made, atol=1e-5)
            assert abs(found["kept"][layer, head] - kept) < 1e-9
            error = np.square(made - expected).sum() / np.square(expected).sum()
            assert abs(found["error"][layer, head] - error) < 1e-5
    assert 0 < found["error"].min() < 1


def test_a_cosine_whose_frequency_is_there_comes_back_and_another_is_lost():
    there, absent = (2 * math.pi * 3 / COLS, 2 * math.pi * 2 / ROWS), (2 * math.pi * 2 / COLS, 2 * math.pi * 1 / ROWS)
    one = with_frequencies([there, (2 * math.pi / COLS, 0.0)])
    y, x = np.mgrid[:ROWS, :COLS]

    def cosine(frequency):
        return np.cos(frequency[0] * x + frequency[1] * y + 0.4)

    found = rope_fourier(one, sizes=SIZE, picture=cosine(there))
    np.testing.assert_allclose(found["reconstruction"], np.broadcast_to(cosine(there), (2, 3, ROWS, COLS)), atol=1e-5)
    np.testing.assert_allclose(found["error"], 0, atol=1e-5)
    lost = rope_fourier(one, sizes=SIZE, picture=cosine(absent))
    np.testing.assert_allclose(lost["reconstruction"], 0, atol=1e-5)
    np.testing.assert_allclose(lost["error"], 1, atol=1e-5)
    # The mirror in one axis alone is another frequency.
    mirrored = rope_fourier(one, sizes=SIZE, picture=cosine((there[0], -there[1])))
    assert mirrored["error"].min() > 0.99
