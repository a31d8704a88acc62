"""A picture that is plain and small is decoded whole, and is what its strips are."""

from __future__ import annotations

import numpy as np
from PIL import Image

from sightline.data import image_file
from sightline.data.image_file import read_image


def test_a_plain_picture_is_what_its_strips_are_and_may_be_written_to(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (13, 29, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "plain.png")
    whole = read_image(tmp_path / "plain.png")
    monkeypatch.setattr(image_file, "_STRIP_PIXELS", 29 * 4)
    assert np.array_equal(whole, pixels)
    assert np.array_equal(read_image(tmp_path / "plain.png"), pixels)
    assert whole.flags.writeable
    assert whole.flags.c_contiguous
