"""Files as they come: every mode gives RGB, every fault gives one line."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from sightline.data import image_file
from sightline.data.image_file import BACKGROUND, read_image, read_image_size, read_picture
from sightline.errors import UnreadableDataError
from tests.faults.test_images import READABLE
from tests.tiny import INPUTS


def outcome(path: Path) -> np.ndarray | str:
    """The image, or the line that refuses it; any other error fails the test."""
    try:
        return read_image(path)
    except UnreadableDataError as error:
        return str(error)


@pytest.mark.parametrize("name", READABLE)
def test_readable_files(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = read_image(INPUTS / name)
    assert (image.dtype, image.shape) == (np.uint8, (*READABLE[name], 3))
    picture = read_picture(str(INPUTS / name))
    assert picture.mode == "RGB"
    assert (np.asarray(picture) == image).all()


@pytest.mark.parametrize(
    "name",
    ["animated.gif", "exif_6.jpg", "gray16_ramp.png", "gray8.png", "la.png", "palette_transparent.png", "rgba.png"],
)
def test_files_cut_anywhere_or_with_flipped_bytes_are_refused_or_read_whole(name: str, tmp_path: Path) -> None:
    data, path = (INPUTS / name).read_bytes(), tmp_path / name
    whole, random = read_image(INPUTS / name), np.random.default_rng(0)
    for length in np.linspace(0, len(data) - 1, 25).astype(int):
        path.write_bytes(data[:length])
        image = outcome(path)
        assert "\n" not in image if isinstance(image, str) else image.shape == whole.shape
    for _ in range(100):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), 3):
            damaged[place] ^= int(random.integers(1, 256))
        path.write_bytes(damaged)
        image = outcome(path)
        assert "\n" not in image if isinstance(image, str) else image.shape[2] == 3


def test_transparency_is_laid_over_white() -> None:
    for name in ("rgba.png", "la.png", "palette_transparent.png"):
        with Image.open(INPUTS / name) as image:
            layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (*BACKGROUND, 255))
        white.alpha_composite(layer)
        expected = np.asarray(white.convert("RGB")).astype(int)
        assert np.abs(read_image(INPUTS / name) - expected).max() <= 1


def test_bombs_take_no_memory_and_no_setting_is_changed() -> None:
    code = (
        "import sys\n"
        "from PIL import Image, ImageFile\n"
        "from sightline.data.image_file import read_image, read_image_size\n"
        "from sightline.errors import UnreadableDataError\n"
        "for path in sys.argv[1:3]:\n"
        "    try:\n"
        "        read_image(path)\n"
        "        raise SystemExit('a bomb was decoded')\n"
        "    except UnreadableDataError:\n"
        "        pass\n"
        "read_image(sys.argv[3])\n"
        "assert read_image_size(sys.argv[1], max_pixels=None) == (100000, 100000)\n"
        "assert Image.MAX_IMAGE_PIXELS == 89478485 and not ImageFile.LOAD_TRUNCATED_IMAGES\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])\n"
    )
    names = ("bomb_100000x100000.png", "bomb_10000x10000_decodes.png", "strip_1x131070.png")
    run = subprocess.run(
        [sys.executable, "-c", code, *(str(INPUTS / name) for name in names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert int(run.stdout) < 200_000  # KiB
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_jpeg_is_decoded_no_larger_than_is_enough(tmp_path, orientation):
    """1/8, 1/4 or 1/2 of the sides, upright, and the same picture."""
    y, x = np.mgrid[0:600, 0:800]
    picture = np.stack([y / 600, x / 800, (y + x) / 1400], axis=-1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray((255 * picture).astype(np.uint8)).save(tmp_path / "a.jpg", quality=95, exif=exif)
    whole = read_image(tmp_path / "a.jpg")
    for least, shrunk in (
        ((30, 30), 8),
        ((100, 120), 4),
        ((200, 250), 2),
        ((280, 401), 1),
        ((700, 10), 1),
        ((140, 390), 2),
    ):
        # Asked for upright, the stored image's sides are the other way round.
        asked = least[::-1] if orientation == 6 else least
        seen = read_image(tmp_path / "a.jpg", least=asked)
        assert seen.shape[:2] == tuple(-(-side // shrunk) for side in whole.shape[:2])
        reduced = np.asarray(Image.fromarray(whole).resize(seen.shape[1::-1], Image.Resampling.BOX))
        assert np.abs(seen.astype(int) - reduced).max() <= 3


@pytest.mark.parametrize("orientation", range(1, 9))
def test_each_orientation_is_written_upright_at_once(
    orientation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Pillow turns it, in strips of a few rows, without a second array of the size of the image."""
    pixels = np.random.default_rng(0).integers(0, 256, (301, 203, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path, exif=exif)
    monkeypatch.setattr(image_file, "_STRIP_PIXELS", 203 * 7)
    # What is imported at the first use is there.
    read_image(path)
    tracemalloc.start()
    try:
        image = read_image(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    with Image.open(path) as stored:
        assert (image == np.asarray(ImageOps.exif_transpose(stored))).all()
    assert image.flags.c_contiguous
    assert peak < 1.5 * pixels.nbytes


@pytest.mark.slow
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_predict_of_89_megapixels_stays_under_a_gigabyte(orientation: int, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "large_images.py"
    words = [sys.executable, str(script), "--orientations", str(orientation), "--out", str(tmp_path / "rows.jsonl")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["worst_mb"] < 1000


def test_what_is_too_large_is_width_times_height_and_names_the_way_on(tmp_path: Path) -> None:
    Image.new("1", (300, 20)).save(tmp_path / "wide.png")
    with pytest.raises(UnreadableDataError, match=r"300x20 = 6000 pixels .*allowed: 5999; --max-pixels N"):
        read_image(tmp_path / "wide.png", max_pixels=5999)
    assert read_image_size(tmp_path / "wide.png") == (20, 300)


def test_the_header_of_a_png_decodes_no_pixel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a run, every PNG of a folder was decoded whole; metadata behind the pixels still counts."""
    exif = Image.Exif()
    exif[0x0112] = 6
    early, late = tmp_path / "early.png", tmp_path / "late.png"
    Image.new("RGB", (30, 20)).save(early, exif=exif)
    stored = early.read_bytes()
    at = stored.index(b"eXIf") - 4
    chunk = stored[at : at + 12 + int.from_bytes(stored[at : at + 4], "big")]
    without = stored.replace(chunk, b"")
    late.write_bytes(without[:-12] + chunk + without[-12:])
    assert read_image_size(late) == read_image(late).shape[:2] == (30, 20)
    plain = tmp_path / "plain.png"
    plain.write_bytes(without)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail(f"{self.filename} was decoded"))
    assert (read_image_size(early), read_image_size(plain)) == ((30, 20), (20, 30))
