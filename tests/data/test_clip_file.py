"""Clips of every kind in files, every way in which one can be wrong, and which of their frames are shown."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from sightline.data.clip_file import ClipHeader, clip_at
from sightline.data.sizes import FrameSampling
from sightline.errors import UnreadableDataError
from tests.clips import SIZE, frames_of, save_folder, save_gif, save_webp


def pixels(path: Path, places: list[int]) -> list[np.ndarray]:
    return [np.asarray(frame) for frame in clip_at(str(path)).frames(places)]


@pytest.mark.parametrize("kind", ["folder", "gif", "webp"])
def test_frames_come_back(tmp_path: Path, kind: str) -> None:
    frames = frames_of(3, 5)
    make = {"folder": save_folder, "gif": save_gif, "webp": save_webp}[kind]
    path = make(tmp_path / f"clip.{kind}", frames)
    assert clip_at(str(path)).header() == ClipHeader(*SIZE, 5)
    for places in ([0, 1, 2, 3, 4], [4], [1, 1, 3], [0, 0, 0], [2, 4]):
        found = pixels(path, places)
        assert len(found) == len(places)
        for place, one in zip(places, found, strict=True):
            assert np.array_equal(one, frames[place]), (kind, place)


def refused(path: Path, places: list[int] | None = None) -> str:
    """The path that the line of a fault begins with."""
    said = attempt(path, places)
    assert isinstance(said, str)
    assert "\n" not in said
    return said.partition(": ")[0]


def attempt(path: Path, places: list[int] | None) -> object:
    """What reading a clip gives, its header or some frames, or the line of its fault; every other fault is raised."""
    clip = clip_at(str(path))
    try:
        return clip.header() if places is None else list(clip.frames(places))
    except UnreadableDataError as error:
        return str(error)


def test_of_a_gif_that_is_cut_the_frames_before_the_cut_are_used(tmp_path: Path) -> None:
    frames = frames_of(2, 6)
    path = save_gif(tmp_path / "a.gif", frames)
    whole = path.read_bytes()
    # A trailer alone says nothing.
    path.write_bytes(whole[:-1])
    assert clip_at(str(path)).header().frames == 6
    path.write_bytes(whole[: len(whole) * 2 // 3])
    count = clip_at(str(path)).header().frames
    assert 1 < count < 6
    assert np.array_equal(pixels(path, [count - 2])[0], frames[count - 2])


@pytest.mark.parametrize("make", [save_gif, save_webp])
def test_a_damaged_frame_is_one_line(tmp_path: Path, make) -> None:
    path = make(tmp_path / ("a.gif" if make is save_gif else "a.webp"), frames_of(2, 6))
    content = bytearray(path.read_bytes())
    draws = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content)
        for place in draws.integers(20, len(content), 6):
            damaged[place] = draws.integers(256)
        path.write_bytes(bytes(damaged))
        header = attempt(path, None)
        found = attempt(path, list(range(header.frames))) if isinstance(header, ClipHeader) else header
        if isinstance(found, str):
            assert found.startswith(f"{path}: ")
            assert "\n" not in found


def test_frames_of_other_sizes_are_refused_by_header_and_by_pixels(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "a", [*frames_of(0, 3), frames_of(1, 1, (8, 8))[0]])
    assert refused(folder) == str(folder / "frame11.png")
    assert refused(folder, [0, 3]) == str(folder)
    # The image descriptor of the last frame of a GIF: its left edge moves out of the screen.
    path = save_gif(tmp_path / "a.gif", frames_of(0, 3))
    content = bytearray(path.read_bytes())
    place = content.rindex(b"\x2c\x00\x00\x00\x00")
    content[place + 1 : place + 3] = struct.pack("<H", 60_000)
    path.write_bytes(bytes(content))
    for places in ([0, 1, 2], [2]):
        assert refused(path, places) == str(path)


def test_frames_lie_in_the_middle_of_equal_spans() -> None:
    assert FrameSampling(4).positions(8).tolist() == [1, 3, 5, 7]
    assert FrameSampling(4).positions(10).tolist() == [1, 3, 6, 8]
    assert FrameSampling(1).positions(9).tolist() == [4]


def test_a_short_clip_repeats_frames_or_shows_those_that_it_has() -> None:
    assert FrameSampling(6).positions(3).tolist() == [0, 0, 1, 1, 2, 2]
    assert FrameSampling(6, exact=False).positions(3).tolist() == [0, 1, 2]
    assert FrameSampling(4, 2).positions(3).tolist() == [0, 2, 2, 2]
    assert FrameSampling(4, 2, exact=False).positions(3).tolist() == [0, 2]
    assert FrameSampling(4, exact=False).positions(1).tolist() == [0]


def test_a_stride_takes_the_middle_part_and_draws_its_begin() -> None:
    sampling = FrameSampling(3, 2)
    assert sampling.positions(11).tolist() == [3, 5, 7]
    begins = {int(sampling.draw(11, seed=0, epoch=epoch, index=5)[0]) for epoch in range(200)}
    assert begins == set(range(7))
