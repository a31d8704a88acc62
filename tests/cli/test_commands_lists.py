"""The verbs that only show something: `encodings`, `models`, `scenes`."""

from __future__ import annotations

import json

import pytest
from PIL import Image

import sightline
from tests.tiny import tree


def test_every_encoding_is_listed(cli):
    code, out, err = cli("encodings", "--json")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["encoding"] for row in rows] == sightline.list_encodings()
    for row in rows:
        assert row["kind"] in ("added", "rotation", "pattern")
        assert row["source"]
        assert row["on a new grid"]
    knobs = {row["encoding"]: row["knob"] for row in rows}
    assert knobs["lookhere_90"] == "global_slope = 1"
    assert knobs["learned_1d"] is None


@pytest.mark.slow
def test_every_model_is_listed(cli):
    code, out, err = cli("models", "--json")
    assert (code, err) == (0, "")
    rows = {row["model"]: row for row in map(json.loads, out.splitlines())}
    assert sorted(rows) == sightline.list_models()
    assert (rows["vit_base_patch16"]["dim"], rows["vit_base_patch16"]["depth"]) == (768, 12)
    # 86.6 million are ViT-B/16's with its 197 learned positions, which are 0.15 of them.
    assert rows["vit_base_patch16"]["parameters"] == "86.4 M"


@pytest.mark.parametrize("task", ["glyphs", "pairs"])
def test_a_sheet_of_scenes(task, cli, tmp_path):
    out = tmp_path / "new" / "sheet.png"
    words = ["--task", task, "--resolutions", "32,64x96", "--columns", 3, "--rows", 2]
    code, said, err = cli("scenes", "--out", out, *words)
    assert (code, err) == (0, "")
    assert "6 scenes at each of 2 sizes" in said
    with Image.open(out) as sheet:
        assert sheet.width >= 3 * 96
        assert sheet.height >= 2 * 32 + 2 * 64
        assert len(sheet.getcolors(1 << 20) or []) > 100


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--out", "a.gif"], ["a.gif", ".png"]),
        ([], ["--out"]),
        (["--out", "a.png", "--split", "tset"], ["'tset'", "did you mean 'test'?"]),
        (["--out", "a.png", "--task", "pairs", "--split", "heldout_fonts"], ["heldout_fonts"]),
        (["--out", "a.png", "--seed", "-1"], ["--seed -1"]),
        (["--out", "a.png", "--seed", str(2**64), "--split", "train"], ["seed 18446744073709551616"]),
    ],
)
def test_what_is_refused(words, says, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("scenes", *words, says=says)
    assert tree(tmp_path) == {}
