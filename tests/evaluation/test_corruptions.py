"""The corruptions of ImageNet-C: the same for an image every time, stronger with severity, and values by hand."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from sightline.errors import InputError
from sightline.evaluation.corruptions import CORRUPTIONS, SEVERITIES, SIDE, _glass_blur, corrupted

PUBLISHED = {
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
}  # fmt: skip
# Those whose five strengths are of several numbers, which do not rise together.
UNSTEADY = {"snow", "fog"}


@pytest.fixture(scope="module")
def image():
    """uint8 [224, 224, 3]: waves in all directions and a little noise."""
    y, x = np.mgrid[:SIDE, :SIDE]
    waves = np.stack([np.sin(x / 9 + y / (4 + one)) for one in range(3)], axis=-1)
    return (128 + 60 * waves + np.random.default_rng(0).normal(0, 8, (SIDE, SIDE, 3))).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("name", sorted(CORRUPTIONS))
def test_each_is_drawn_by_the_image_alone(name, image):
    made = corrupted(image, name, 3, "a.JPEG")
    assert made.shape == image.shape
    assert made.dtype == np.uint8
    assert np.array_equal(made, corrupted(image, name, 3, "a.JPEG"))
    assert not np.array_equal(made, image)
    drawn = name not in ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
    assert np.array_equal(made, corrupted(image, name, 3, "b.JPEG")) != drawn


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - {"glass_blur", "elastic_transform"}))
def test_more_severe_is_further_away(name, image):
    apart = [
        float(np.square(corrupted(image, name, level + 1, "a").astype(float) - image).mean())
        for level in range(SEVERITIES)
    ]
    assert apart[-1] > apart[0]
    if name not in UNSTEADY:
        assert apart == sorted(apart)


def test_all_but_frost_are_there():
    assert set(CORRUPTIONS) == PUBLISHED - {"frost"}
    assert all(len(strengths) == SEVERITIES for _, strengths in CORRUPTIONS.values())
    with pytest.raises(InputError, match=r"'fog'"):
        corrupted(np.zeros((2, 2, 3), np.uint8), "fogg", 1, "a")


def test_contrast_and_brightness_by_hand():
    image = np.zeros((2, 2, 3), np.uint8)
    image[0], image[1] = (100, 50, 0), (200, 150, 100)
    # The mean of each channel is 150, 100 and 50; of the differences a twentieth is left.
    made = corrupted(image, "contrast", 5, "a")
    assert made[:, 0].tolist() == [[147, 97, 47], [152, 102, 52]]
    # The value, the largest channel, rises by a tenth of 255; hue and saturation stay.
    made = corrupted(image, "brightness", 1, "a")
    assert made[0, 0].tolist() == [125, 62, 0]
    assert made[1, 0].tolist() == [225, 169, 112]
    assert corrupted(np.zeros((1, 1, 3), np.uint8), "brightness", 5, "a").tolist() == [[[127, 127, 127]]]


def test_pixelate_and_jpeg_are_pillows(image):
    picture = Image.fromarray(image)
    small = picture.resize((int(SIDE * 0.25),) * 2, Image.Resampling.BOX)
    assert np.array_equal(corrupted(image, "pixelate", 5, "a"), small.resize((SIDE, SIDE), Image.Resampling.BOX))
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=7)
    assert np.array_equal(corrupted(image, "jpeg_compression", 5, "a"), Image.open(content))


def test_noises_have_their_moments():
    grey = np.full((SIDE, SIDE, 3), 128, np.uint8)
    noise = (corrupted(grey, "gaussian_noise", 1, "a").astype(float) - 127.5) / 255
    assert noise.std() == pytest.approx(0.08, rel=0.02)
    shot = corrupted(grey, "shot_noise", 1, "a").astype(float) / 255
    # Photons of a Poisson: the variance is the mean over 60.
    assert shot.std() == pytest.approx(np.sqrt(128 / 255 / 60), rel=0.02)
    impulse = corrupted(grey, "impulse_noise", 3, "a")
    hit = (impulse == 0) | (impulse == 255)
    assert hit.mean() == pytest.approx(0.09, rel=0.05)
    assert (impulse == 255).sum() / hit.sum() == pytest.approx(0.5, abs=0.02)


def test_blurs_keep_what_is_even_and_spread_a_point():
    grey = np.full((SIDE, SIDE, 3), 100, np.uint8)
    for name in ("defocus_blur", "motion_blur", "zoom_blur", "glass_blur"):
        assert np.abs(corrupted(grey, name, 3, "a").astype(int) - 100).max() <= 1, name
    point = np.zeros((SIDE, SIDE, 3), np.uint8)
    point[112, 112] = 255
    made = corrupted(point, "defocus_blur", 1, "a")[..., 0]
    # A disk of radius 3 has 29 pixels.
    assert (made > 0).sum() == 29
    assert made[112, 112] == 255 // 29
    made = corrupted(point, "motion_blur", 1, "a")[..., 0]
    rows, cols = np.nonzero(made)
    # Along one line through the point, to one side.
    assert abs(np.corrcoef(rows, cols)[0, 1]) > 0.5 or np.ptp(rows) <= 1
    assert made[112, 112] == made.max()


@pytest.mark.parametrize(("place", "visited"), [(15, True), (2, True), (1, False)])
def test_glass_visits_the_pixels_that_the_published_code_visits(place, visited):
    """From side - reach down to reach + 1, both ends included."""

    class Once:
        def integers(self, low, high, size):
            moves = np.zeros(size, np.int64)
            moves[place, place] = -1
            return moves

    image = np.random.default_rng(0).random((16, 16, 3))
    made = _glass_blur(image, (1e-6, 1, 1), Once())  # type: ignore[arg-type]
    expected = image.copy()
    if visited:
        expected[place, place], expected[place - 1, place - 1] = image[place - 1, place - 1], image[place, place]
    assert np.array_equal(made, expected)
