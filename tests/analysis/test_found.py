"""What was found is told in a line where it is printed, and read again from its file."""

from __future__ import annotations

import numpy as np
import pytest

from sightline.analysis import attention_distance
from sightline.analysis.found import Analysis
from sightline.errors import InputError
from sightline.models import create_model


@pytest.fixture(scope="module")
def found():
    model = create_model("vit_micro_patch4", encoding="lookhere_90", depth=2, image_size=16).eval()
    images = [np.full((20, 30, 3), 9, np.uint8), np.zeros((16, 16, 3), np.uint8)]
    return attention_distance(model, images, [16, (16, 24)])


def test_it_comes_back_from_its_file(found, tmp_path):
    np.savez_compressed(tmp_path / "one.npz", **found.flat())
    again = Analysis.read(tmp_path / "one.npz")
    assert (again.sizes, again.names, again.about) == (found.sizes, found.names, found.about)
    for size, arrays in found.arrays.items():
        for name, array in arrays.items():
            assert np.array_equal(again.arrays[size][name], array), name


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_none_is_refused_in_a_line(content, tmp_path):
    file = tmp_path / "bad.npz"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.npz"):
        Analysis.read(file)
