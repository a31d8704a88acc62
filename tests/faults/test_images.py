"""Image files as they are found in the world, through `sightline predict`: answered, or named with the reason."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np

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
    "bomb_100000x100000.png": "too large (allowed: 89478485; --max-pixels N takes more)",
    "bomb_10000x10000_decodes.png": "10000x10000 = 100000000 pixels is too large",
    "header_only.jpg": "not an image in a known format",
    "text.jpg": "not an image in a known format",
    "truncated.jpg": "truncated",
    "zero_bytes.jpg": "empty",
    "zero_width.png": "",
}


def test_all_of_them_at_once(cli, tiny_run, tmp_path):
    """Each has its outcome in its place, each bad one also its line on stderr, and the exit code is 3."""
    names = sorted([*READABLE, *UNREADABLE])
    code, out, err = cli("predict", tiny_run, *(INPUTS / name for name in names), "--json")
    assert code == 3
    found = [json.loads(line) for line in out.splitlines()]
    assert [answer["image"] for answer in found] == [str(INPUTS / name) for name in names]
    for name, answer in zip(names, found, strict=True):
        if name in UNREADABLE:
            assert set(answer) == {"image", "error"}
            assert UNREADABLE[name] in answer["error"]
            continue
        assert answer["size"] == READABLE[name]
        assert len(answer["top"]) == 5
        assert all(np.isfinite(one["score"]) for one in answer["top"])
    bad = [answer for answer in found if "error" in answer]
    assert err.splitlines() == [
        *(f"sightline: error: {answer['image']}: {answer['error']}" for answer in bad),
        f"sightline: error: {len(UNREADABLE)} of {len(names)} images could not be read",
    ]
    assert tree(tmp_path) == {}


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
