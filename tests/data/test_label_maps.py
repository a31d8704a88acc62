"""Maps of labels as they are stored: the numbers as they are written, and which of them are classes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sightline.data.image_file import read_image_size, read_label_map
from sightline.data.paired import LabelMapping
from sightline.errors import UnreadableDataError


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_map_is_upright_as_its_header_says(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    values = np.arange(35, dtype=np.uint8).reshape(5, 7)
    Image.fromarray(values).save(tmp_path / "a.png", exif=exif)
    upright = read_label_map(tmp_path / "a.png")
    assert upright.shape == read_image_size(tmp_path / "a.png")
    turned = {1: values, 2: values[:, ::-1], 3: values[::-1, ::-1], 4: values[::-1], 5: values.T,
              6: np.rot90(values, -1), 7: values[::-1, ::-1].T, 8: np.rot90(values)}  # fmt: skip
    assert (upright == turned[orientation]).all()


@pytest.mark.parametrize(
    ("name", "colour", "said"),
    [("a.jpg", (0, 0, 0), "JPEG"), ("a.png", (0, 1, 0), "colour"), ("a.png", (0, 0, 0, 9), "transparent")],
)
def test_what_is_no_map(tmp_path, name, colour, said):
    Image.new("RGB" if len(colour) == 3 else "RGBA", (7, 5), colour).save(tmp_path / name)
    with pytest.raises(UnreadableDataError, match=said):
        read_label_map(tmp_path / name)
    with pytest.raises(UnreadableDataError, match="too large"):
        read_label_map(tmp_path / name, max_pixels=34)
    with pytest.raises(UnreadableDataError, match=r"b\.png"):
        read_label_map(tmp_path / "b.png")


def test_which_class_each_number_is(tmp_path):
    Image.fromarray(np.array([[7, 9, 255], [1, 7, 9]], np.uint8)).save(tmp_path / "a.png")
    read = LabelMapping([9, 7], "7 or 9", ignored=[255, 1]).read(str(tmp_path / "a.png"))
    assert read.dtype == np.uint8
    assert read.tolist() == [[1, 0, 255], [255, 1, 0]]
    for value in (8, 255, 256, 65535):
        values = np.full((4, 6), 7, np.uint8 if value < 256 else np.uint16)
        values[2, 5] = values[3, 0] = value
        Image.fromarray(values).save(tmp_path / "a.png")
        with pytest.raises(UnreadableDataError) as caught:
            LabelMapping([7], "7 alone", ignored=[]).read(str(tmp_path / "a.png"))
        assert str(caught.value).startswith(f"{tmp_path / 'a.png'}: value {value} at row 2,")
