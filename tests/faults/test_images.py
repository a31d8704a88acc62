"""Image files as they are found in the world, through `sightline predict`: answered, or named with the reason."""

from __future__ import annotations

import json
import os
import resource
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.tiny import INPUTS, tree

# What the file shows upright (height, width), or why it cannot be read.
READABLE = {
    "animated.gif": [16, 16], "bilevel.png": [32, 32], "cmyk.jpg": [32, 32], "good.jpg": [64, 48],
    "gray16_ramp.png": [64, 48], "gray8.png": [32, 32], "la.png": [32, 32], "one_pixel.png": [1, 1],
    "overwritten_middle.jpg": [64, 48], "palette_transparent.png": [32, 32], "rgba.png": [32, 32],
    "spaces_and_umlaut.png": [16, 16], "strip_1x131070.png": [131070, 1],
    **{f"exif_{tag}.jpg": [48, 64] if tag < 5 else [64, 48] for tag in range(1, 9)},
}  # fmt: skip
UNREADABLE = {
    "bomb_100000x100000.png": "too large (allowed: 89478485 pixels)",
    "bomb_10000x10000_decodes.png": "10000x10000 = 100000000 pixels is too large",
    "header_only.jpg": "not an image in a known format",
    "text.jpg": "not an image in a known format",
    "truncated.jpg": "truncated",
    "zero_bytes.jpg": "empty",
    "zero_width.png": "",
}


def test_every_input_has_its_outcome():
    images = {path.name for path in INPUTS.iterdir() if path.suffix in (".jpg", ".png", ".gif")}
    assert images == {*READABLE, *UNREADABLE}


def test_all_of_them_at_once(cli, tiny_run, tmp_path):
    """The readable ones are answered in their order, each other is one line, and the exit code is 3."""
    names = sorted([*READABLE, *UNREADABLE])
    code, out, err = cli("predict", tiny_run, *(INPUTS / name for name in names), "--json")
    assert code == 3
    found = [json.loads(line) for line in out.splitlines()]
    assert [os.path.basename(answer["image"]) for answer in found] == [name for name in names if name in READABLE]
    for answer in found:
        assert answer["size"] == READABLE[os.path.basename(answer["image"])]
        assert len(answer["top"]) == 5
        assert all(np.isfinite(one["score"]) for one in answer["top"])
    said = [line for line in err.splitlines() if line.startswith("sightline: error: ")]
    assert len(said) == len(UNREADABLE) + 1
    for line, name in zip(said, (name for name in names if name in UNREADABLE), strict=False):
        assert name in line
        assert UNREADABLE[name] in line
    assert said[-1] == f"sightline: error: {len(UNREADABLE)} of {len(names)} images could not be read"
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("name", UNREADABLE)
def test_one_alone(name, cli, tiny_run):
    code, out, err = cli("predict", tiny_run, INPUTS / name)
    assert (code, out) == (3, "")
    assert err.count("\n") == 2
    assert name in err


def test_things_that_are_no_files(cli, tiny_run, tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nothing.png")
    os.mkfifo(tmp_path / "pipe.png")
    names = ["folder.png", "dangling.png", "pipe.png", "missing.png"]
    says = ["a folder", "a link to a missing file", "not a regular file", "no such file"]
    code, out, err = cli("predict", tiny_run, *(tmp_path / name for name in names), INPUTS / "good.jpg", "--json")
    assert code == 3
    assert len(out.splitlines()) == 1
    for name, reason in zip(names, says, strict=True):
        assert f"{tmp_path / name}: {reason}" in err


@pytest.mark.slow
def test_bombs_take_no_memory(cli, tiny_run):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("bomb_100000x100000.png", "bomb_10000x10000_decodes.png"):
        assert cli("predict", tiny_run, INPUTS / name)[0] == 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_no_global_limit_was_changed():
    from PIL import ImageFile

    assert Image.MAX_IMAGE_PIXELS == 89_478_485
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


# How a file must be stored so that each orientation shows it upright.
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright.swapaxes(0, 1)[::-1, ::-1],
    8: lambda upright: np.rot90(upright, -1),
}


def test_one_scene_in_every_orientation(cli, tiny_run, tmp_path):
    upright = np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    for tag, stored in STORED.items():
        exif = Image.Exif()
        exif[0x0112] = tag
        Image.fromarray(np.ascontiguousarray(stored(upright))).save(tmp_path / f"{tag}.png", exif=exif)
    code, out, _ = cli("predict", tiny_run, *(tmp_path / f"{tag}.png" for tag in STORED), "--json", "--topk", 10)
    assert code == 0
    first, *others = [json.loads(line) for line in out.splitlines()]
    assert (first["size"], first["grid"]) == ([24, 40], [6, 10])
    assert len({one["score"] for one in first["top"]}) == 10
    for other in others:
        assert {**other, "image": first["image"]} == first


def test_the_given_orientations_differ(cli, tiny_run):
    """The same stored pixels under eight tags are eight pictures, four of them upright ones."""
    code, out, _ = cli("predict", tiny_run, *(INPUTS / f"exif_{tag}.jpg" for tag in range(1, 9)), "--json")
    assert code == 0
    tops = {json.dumps(json.loads(line)["top"]) for line in out.splitlines()}
    assert len(tops) == 8


def test_sixteen_bits_and_transparency(cli, tiny_run, tmp_path):
    """16 bits are scaled, not clipped; what is transparent shows white; and each equals its plain 8-bit picture."""
    ramp = np.linspace(0, 65535, 32 * 32).reshape(32, 32)
    Image.fromarray(ramp.round().astype(np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray((ramp / 257).round().astype(np.uint8)).save(tmp_path / "flat.png")
    clear = np.zeros((32, 32, 4), np.uint8)
    clear[:16, :, 3] = 255
    Image.fromarray(clear).save(tmp_path / "clear.png")
    over = np.zeros((32, 32, 3), np.uint8)
    over[16:] = 255
    Image.fromarray(over).save(tmp_path / "over.png")
    names = ["deep", "flat", "clear", "over"]
    code, out, _ = cli("predict", tiny_run, *(tmp_path / f"{name}.png" for name in names), "--json", "--topk", 10)
    assert code == 0
    deep, flat, clear_top, over_top = (
        {one["class"]: one["score"] for one in json.loads(line)["top"]} for line in out.splitlines()
    )
    assert deep == pytest.approx(flat, abs=1e-3)
    assert clear_top == pytest.approx(over_top, abs=1e-6)
    assert deep != pytest.approx(clear_top, abs=1e-3)


def test_names_of_all_kinds(cli, tiny_run, tmp_path):
    names = ["a b.jpg", "grün.jpg", "日本.jpg", "-dash.jpg", "no_extension", "wrong.png", "100%.jpg", "[bold]x[.jpg"]
    for name in names:
        shutil.copy(INPUTS / "good.jpg", tmp_path / name)
    code, out, _ = cli("predict", tiny_run, *(tmp_path / name for name in names), "--json")
    assert code == 0
    assert [os.path.basename(json.loads(line)["image"]) for line in out.splitlines()] == names
    code, out, _ = cli("predict", tiny_run, *(tmp_path / name for name in names))
    assert code == 0
    for name, line in zip(names, out.splitlines(), strict=True):
        assert name in line
