"""What is remembered of a folder: by stat alone, atomically, within a bound, and never believed where it is damaged."""

import os

import numpy as np
import pytest
from PIL import Image

from sightline.data import image_index
from sightline.data.sources.imagefolder import ImageFolder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "scans"


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "images"
    for label, name in enumerate(("a", "b", "ü \n c")):
        (root / "train" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((10 + number, 20 + label, 3), 40 * label, np.uint8)
            Image.fromarray(pixels).save(root / "train" / name / f"{number}.png")
    return root


@pytest.fixture
def opened(monkeypatch):
    """The files whose headers were read."""
    found = []
    real = image_index.read_header
    monkeypatch.setattr(image_index, "read_header", lambda path: found.append(path) or real(path))
    return found


def read(root):
    source, _ = ImageFolder(root).check_readable("train", skip_unreadable="all")
    return [source.stored_size("train", index) for index in range(source.length("train"))]


def test_the_second_time_by_stat_alone(cache, folder, opened):
    sizes = read(folder)
    assert len(opened) == 9
    opened.clear()
    assert read(folder) == sizes
    assert ImageFolder(folder).fingerprint() == ImageFolder(folder).fingerprint()
    assert opened == []
    path = folder / "train" / "b" / "1.png"
    Image.new("RGB", (50, 30)).save(path)
    new = folder / "train" / "a" / "00.png"
    Image.new("RGB", (5, 7)).save(new)
    assert (30, 50) in read(folder)
    assert sorted(opened) == sorted([str(path), str(new)])


def test_a_file_of_the_same_size_and_time_is_read_again(cache, folder, opened):
    """`cp -p` and `touch` hide a change from size and time, not from the time of the change itself."""
    path = folder / "train" / "a" / "0.png"
    status = path.stat()
    read(folder)
    opened.clear()
    content = bytearray(path.read_bytes())
    content[-1] ^= 255
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    read(folder)
    assert opened == [str(path)]


def test_a_damaged_cache_is_ignored(cache, folder, opened):
    sizes = read(folder)
    [file] = cache.iterdir()
    content = file.read_bytes()
    for damaged in (b"", b"no archive", content[: len(content) // 2], content[:-10]):
        file.write_bytes(damaged)
        opened.clear()
        assert read(folder) == sizes
        assert len(opened) == 9
    rng = np.random.default_rng(0)
    for _ in range(10):
        flipped = bytearray(content)
        flipped[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        file.write_bytes(flipped)
        assert len(read(folder)) == 9
