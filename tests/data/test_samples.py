"""What a header says of its numbers holds; the values were checked with tifffile."""

from __future__ import annotations

import contextlib
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from sightline.data.image_file import read_image, read_image_size, read_label_map, read_picture, rgb_pixels
from sightline.errors import UnreadableDataError
from tests.data.image_bytes import chunk, png, tiff


def scaled(values, most, least=0):
    """The one rule."""
    above = values.astype(np.int64).clip(least, most) - least
    return (above * 255 + (most - least) // 2) // (most - least)


def numbers(most, channels=None, seed=0):
    values = np.random.default_rng(seed).integers(0, most + 1, (5, 7) if channels is None else (5, 7, channels))
    values[0, 0], values[0, 1] = 0, most
    return values


def read(path, content):
    """An image that is read alike by each way."""
    path.write_bytes(content)
    pixels = read_image(path)
    assert (np.asarray(read_picture(path)) == pixels).all()
    # Pillow's own readers know fewer.
    with contextlib.suppress(UnidentifiedImageError), Image.open(path) as image:
        assert (rgb_pixels(image) == pixels).all()
    return pixels


def as_rgb(values):
    return np.broadcast_to(values[..., None], (*values.shape, 3)) if values.ndim == 2 else values


@pytest.mark.parametrize("photometric", [0, 1])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 12, 16])
def test_grey_tiffs_of_every_depth(tmp_path, bits, photometric):
    most = 2**bits - 1
    values = numbers(most)
    expected = scaled(values, most)
    pixels = read(tmp_path / "a.tif", tiff(values, bits, photometric))
    assert (pixels == as_rgb(expected if photometric else 255 - expected)).all()


@pytest.mark.parametrize(
    ("bits", "channels", "photometric", "said", "least", "most"),
    [
        (16, None, 1, {281: (4095,)}, 0, 4095),
        (16, None, 0, {281: (4095,)}, 0, 4095),
        (16, None, 1, {280: (100,), 281: (1023,)}, 100, 1023),
        (16, 3, 2, {281: (4095, 4095, 4095)}, 0, 4095),
        (8, None, 1, {281: (100,)}, 0, 100),
        (8, None, 0, {281: (100,)}, 0, 100),
        (8, 3, 2, {281: (127, 127, 127)}, 0, 127),
        (4, None, 1, {281: (10,)}, 0, 10),
        (16, None, 1, {339: (2,)}, 0, 32767),
        (8, None, 1, {339: (2,)}, 0, 127),
    ],
)
def test_a_range_that_is_stated(tmp_path, bits, channels, photometric, said, least, most):
    values = numbers(most, channels)
    expected = scaled(values if photometric else most - values, most, least)
    assert (read(tmp_path / "a.tif", tiff(values, bits, photometric, tags=said)) == as_rgb(expected)).all()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (tiff(numbers(255), 8, tags={339: (2,)}), "signed"),
        (tiff(numbers(65535), 16, tags={339: (2,)}), "signed"),
        (tiff(numbers(2**31), 32), "32-bit"),
        (tiff(numbers(1023), 10), "10"),
        (tiff(numbers(16383), 14), "14"),
        (tiff(numbers(4095, 3), 12, 2), "12, 12, 12"),
    ],
)
def test_what_cannot_be_known_is_refused(tmp_path, content, said):
    (tmp_path / "a.tif").write_bytes(content)
    with pytest.raises(UnreadableDataError, match=said):
        read_image(tmp_path / "a.tif")


def test_grey_and_colours_of_16_bits_are_equal(tmp_path):
    values = numbers(65535)
    colours = np.repeat(values[..., None], 3, axis=2)
    opaque = np.full((5, 7, 1), 65535)
    expected = as_rgb(scaled(values, 65535))
    for name, content in {
        "grey.png": png(values, 16, 0),
        "rgb.png": png(colours, 16, 2),
        "la.png": png(np.concatenate([values[..., None], opaque], axis=2), 16, 4),
        "rgba.png": png(np.concatenate([colours, opaque], axis=2), 16, 6),
        "grey.tif": tiff(values, 16),
        "rgb.tif": tiff(colours, 16, 2),
        "rgba.tif": tiff(np.concatenate([colours, opaque], axis=2), 16, 2, tags={338: (2,)}),
        "grey.pgm": b"P5 7 5 65535\n" + values.astype(">u2").tobytes(),
        "rgb.ppm": b"P6 7 5 65535\n" + colours.astype(">u2").tobytes(),
    }.items():
        assert (read(tmp_path / name, content) == expected).all(), name


def test_transparency_of_16_bits(tmp_path):
    """Colours over white; such as are multiplied by alpha already are not multiplied again."""
    values = numbers(65535, 4)
    alpha = values[..., 3:] / 65535
    over = values[..., :3] / 257 * alpha + 255 * (1 - alpha)
    assert np.abs(read(tmp_path / "a.png", png(values, 16, 6)) - over).max() < 1
    grey = values[..., [0, 3]]
    assert np.abs(read(tmp_path / "la.png", png(grey, 16, 4)) - over[..., :1]).max() < 1
    values[..., :3] = values[..., :3] * values[..., 3:] // 65535
    for order in "<>":
        pixels = read(tmp_path / "a.tif", tiff(values, 16, 2, order, {338: (1,)}))
        assert np.abs(pixels - (values[..., :3] / 257 + 255 * (1 - alpha))).max() < 1


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_a_transparent_grey_of_every_depth(tmp_path, bits):
    most = 2**bits - 1
    values = numbers(most)
    for clear in (0, most, int(values[3, 3])):
        expected = np.where(values == clear, 255, scaled(values, most))
        said = chunk(b"tRNS", struct.pack(">H", clear))
        (tmp_path / "a.png").write_bytes(png(values, bits, 0, said))
        assert (read_image(tmp_path / "a.png") == as_rgb(expected)).all()
        # Of a label map the numbers stay.
        assert (read_label_map(tmp_path / "a.png") == values).all()


@pytest.mark.parametrize("bits", [8, 16])
def test_a_transparent_colour(tmp_path, bits):
    values = numbers(2**bits - 1, 3)
    values[1, 1] = values[2, 2]
    # As good as the same in the upper bytes.
    values[3, 3] = values[2, 2] ^ [0, 0, 1]
    expected = scaled(values, 2**bits - 1)
    expected[[1, 2], [1, 2]] = 255
    said = chunk(b"tRNS", struct.pack(">3H", *values[2, 2].tolist()))
    assert (read(tmp_path / "a.png", png(values, bits, 2, said)) == expected).all()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_transparent_entry_of_a_palette(tmp_path, bits):
    values = numbers(2**bits - 1)
    palette = np.random.default_rng(1).integers(0, 255, (2**bits, 3), dtype=np.uint8)
    expected = np.where(values[..., None] == 1, 255, palette[values])
    said = chunk(b"PLTE", palette.tobytes()) + chunk(b"tRNS", b"\xff\0")
    assert (read(tmp_path / "a.png", png(values, bits, 3, said)) == expected).all()
    assert (read_label_map(tmp_path / "a.png") == values).all()


@pytest.mark.parametrize("most", [1, 10, 100, 254, 255, 256, 1000, 1023, 4095, 65535])
def test_ppms_of_every_maxval(tmp_path, most):
    grey, colours = numbers(most), numbers(most, 3)
    kind = ">u2" if most > 255 else "u1"
    for name, letter, values in (("a.pgm", b"P5", grey), ("a.ppm", b"P6", colours)):
        (tmp_path / name).write_bytes(b"%s 7 5 %d\n" % (letter, most) + values.astype(kind).tobytes())
        assert (read_image(tmp_path / name) == as_rgb(scaled(values, most))).all()
    (tmp_path / "b.pgm").write_text(f"P2 7 5 {most}\n" + " ".join(map(str, grey.ravel())) + "\n")
    assert (read_image(tmp_path / "b.pgm") == as_rgb(scaled(grey, most))).all()
    words = " # said\n".join(map(str, colours.ravel()))
    (tmp_path / "b.ppm").write_text(f"P3 # plain\n7 5\n{most}\n{words}\n")
    assert (read_image(tmp_path / "b.ppm") == scaled(colours, most)).all()


LARGE = zlib.compress(bytes(3 << 20))
METADATA = {
    "zTXt": chunk(b"zTXt", b"a\0\0" + LARGE),
    "iTXt": chunk(b"iTXt", b"a\0\1\0\0\0" + LARGE),
    "tEXt": chunk(b"tEXt", b"a\0" + b"x" * (3 << 20)),
    "profile": chunk(b"iCCP", b"a\0\0" + LARGE),
    "unknown method": chunk(b"iCCP", b"a\0\7" + LARGE),
    "cut profile": chunk(b"iCCP", b"a"),
    "cut size": chunk(b"pHYs", b"a"),
    "cut exif": chunk(b"eXIf", b"MM\0*\0\0"),
    "checksum": chunk(b"tEXt", b"a\0b")[:-1] + b"?",
    # More than Pillow takes of all texts together.
    "many": b"".join(chunk(b"zTXt", b"a%d\0\0" % at + zlib.compress(bytes(1_000_000))) for at in range(70)),
}


@pytest.mark.parametrize("name", METADATA)
@pytest.mark.parametrize("behind", [False, True])
def test_metadata_that_is_not_needed_is_passed_over(tmp_path, name, behind):
    values = numbers(255, 3)
    path = tmp_path / "a.png"
    path.write_bytes(png(values, 8, 2, **{"behind" if behind else "before": METADATA[name]}))
    assert (read_image(path) == values).all()
    assert (np.asarray(read_picture(path)) == values).all()
    assert read_image_size(path) == (5, 7)
    path.write_bytes(png(values[..., 0], 8, 0, **{"behind" if behind else "before": METADATA[name]}))
    assert (read_label_map(path) == values[..., 0]).all()


@pytest.mark.parametrize("bits", [8, 16])
def test_a_map_in_equal_channels_is_its_numbers(tmp_path, bits):
    values = numbers(2**bits - 1)
    three, opaque = np.repeat(values[..., None], 3, axis=2), np.full((5, 7, 1), 2**bits - 1)
    for colour, stored in (
        (2, three),
        (6, np.concatenate([three, opaque], axis=2)),
        (4, np.concatenate([values[..., None], opaque], axis=2)),
    ):
        (tmp_path / "a.png").write_bytes(png(stored, bits, colour))
        read_ = read_label_map(tmp_path / "a.png")
        assert read_.dtype.itemsize == bits // 8
        assert (read_ == values).all()


@pytest.mark.parametrize("bits", [8, 16])
def test_colours_are_no_map(tmp_path, bits):
    values = np.zeros((5, 7, 4), np.int64)
    values[..., 3] = 2**bits - 1
    values[2, 3, 1] = 1
    (tmp_path / "a.png").write_bytes(png(values, bits, 6))
    with pytest.raises(UnreadableDataError, match=r"row 2, .*3 .*colour"):
        read_label_map(tmp_path / "a.png")
    values[2, 3] = 0
    (tmp_path / "a.png").write_bytes(png(values, bits, 6))
    with pytest.raises(UnreadableDataError, match=r"row 2, .*3 .*transparent"):
        read_label_map(tmp_path / "a.png")


def test_pillow_itself_stays_as_it_is(tmp_path):
    """What others open with it, they open with its own readers."""
    (tmp_path / "a.png").write_bytes(png(numbers(255), 8, 0, METADATA["checksum"]))
    assert read_image(tmp_path / "a.png").shape == (5, 7, 3)
    with pytest.raises(UnidentifiedImageError):
        Image.open(tmp_path / "a.png")
    (tmp_path / "a.tif").write_bytes(tiff(numbers(1023), 10))
    with pytest.raises(UnidentifiedImageError):
        Image.open(tmp_path / "a.tif")
