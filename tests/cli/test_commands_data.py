"""`sightline data check`: everything read once, and remembered."""

import json
import shlex
import shutil

import numpy as np
import pytest
from PIL import Image

from sightline.data import image_index
from sightline.data.open import open_source
from tests.tiny import INPUTS, pictures


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two classes; in train two images that cannot be read, in test one twin and one truncated."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    root, rng = tmp_path / "images", np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 3)):
        for name in ("ant", "bee"):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (12 + 9 * number, 20, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.png")
    shutil.copy(INPUTS / "bomb_100000x100000.png", root / "train" / "ant" / "huge.png")
    (root / "train" / "bee" / "empty.png").touch()
    shutil.copy(INPUTS / "truncated.jpg", root / "test" / "ant" / "cut.jpg")
    shutil.copy(root / "train" / "bee" / "3.png", root / "test" / "bee" / "twin.png")
    shutil.copy(root / "train" / "bee" / "4.png", root / "train" / "ant" / "again.png")
    return root


def test_all_that_is_found(folder, cli, tmp_path):
    code, out, err = cli("data", "check", f"imagefolder:{folder}", "--json", "--sheet", tmp_path / "sheet.png")
    assert code == 3
    assert "2 images of a split cannot be read (allowed: 0; --skip-unreadable N or all" in err
    record = json.loads(out)
    assert record["counts"] == {"train": {"ant": 7, "bee": 6}, "test": {"ant": 3, "bee": 4}}
    unreadable = {split: {one["path"]: one["reason"] for one in found} for split, found in record["unreadable"].items()}
    assert "100000x100000" in unreadable["train"][str(folder / "train/ant/huge.png")]
    assert "--max-pixels N" in unreadable["train"][str(folder / "train/ant/huge.png")]
    assert "truncated" in unreadable["test"][str(folder / "test/ant/cut.jpg")]
    assert record["across_splits"] == [[str(folder / "train/bee/3.png"), str(folder / "test/bee/twin.png")]]
    assert [str(folder / "train/ant/again.png"), str(folder / "train/bee/4.png")] in record["duplicates"]
    assert record["under_several_classes"] == [[str(folder / "train/ant/again.png"), str(folder / "train/bee/4.png")]]
    assert (record["smallest"], record["largest"]) == ("20x12", "20x57")
    assert record["next"].startswith(f"sightline train --data imagefolder:{folder} --skip-unreadable 2 --out runs/")
    assert Image.open(tmp_path / "sheet.png").size[0] > 400
    code, out, _ = cli("data", "check", f"imagefolder:{folder}", "--skip-unreadable", "all")
    assert code == 0
    for word in (
        "about square",
        "2:1 to 3:1",
        "mean 0.",
        "3 images cannot be read",
        "1 of them under several classes",
        out.splitlines()[-1][:5],
    ):
        assert word in out
    assert out.splitlines()[-2:] == [
        f"next: {record['next']}",
        f"or packed, each at its own aspect: {record['packed']}",
    ]


def test_what_was_found_is_known_to_the_next_command(folder, cli, monkeypatch):
    cli("data", "check", f"imagefolder:{folder}")
    monkeypatch.setattr(image_index, "read_header", None)
    # The truncated one too, which only decoding tells.
    code, out, err = cli("pack", "stats", f"imagefolder:{folder}", "--split", "test", "--skip-unreadable", 0)
    assert (code, out) == (3, "")
    assert "1 of 7 images" in err
    assert "cut.jpg" in err
    assert cli("pack", "stats", f"imagefolder:{folder}", "--split", "test", "--skip-unreadable", 1)[0] == 0


@pytest.mark.slow
def test_larger_images_are_read_where_that_is_asked_for(folder, cli, tmp_path):
    """Also beyond Pillow's own limit."""
    (folder / "train" / "ant" / "huge.png").unlink()
    Image.new("1", (20_000, 10_000)).save(folder / "train" / "ant" / "large.png", compress_level=1)
    words = ["data", "check", f"imagefolder:{folder}", "--json", "--skip-unreadable", "all"]
    assert len(json.loads(cli(*words)[1])["unreadable"]["train"]) == 2
    record = json.loads(cli(*words, "--max-pixels", 200_000_000)[1])
    assert len(record["unreadable"]["train"]) == 1
    assert record["largest"] == "20000x10000"
    assert "--max-pixels 200000000" in record["next"]


def test_class_folders_alone_may_be_trained_on(folder, cli):
    """A part of them; the command that is printed opens it."""
    (folder / "train" / "ant" / "huge.png").unlink()
    out = cli("data", "check", folder / "train", "--skip-unreadable", "all")[1]
    words = shlex.split(out.splitlines()[-1].partition(": ")[2])
    assert words[1:3] == ["train", "--data"]
    assert open_source(words[3]).splits == ("train", "test")


@pytest.mark.parametrize(("classes", "count"), [(("ant",), 12), (("ant", "bee"), 2)])
def test_no_training_is_named_that_would_be_refused(classes, count, cli, tmp_path):
    """Of one class, or of too few images to divide."""
    pictures(tmp_path / "data", classes=classes, count=count)
    (tmp_path / "data" / "train").rename(tmp_path / "mine")
    code, out, err = cli("data", "check", tmp_path / "mine")
    assert (code, "train --data" in out, "evaluate RUN" in out) == (0, False, True), err


def test_files_that_are_passed_over_are_named(cli, tmp_path):
    """A map of labels without an image, among pairs that are whole."""
    for place, split in enumerate(("train", "test")):
        for number in range(3):
            for kind, mode in (("images", "RGB"), ("masks", "L")):
                path = tmp_path / kind / split / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new(mode, (20, 16), (place, number * 9, 0) if mode == "RGB" else 1).save(path)
    Image.new("L", (20, 16)).save(tmp_path / "masks" / "train" / "9.png")
    (tmp_path / "classes.txt").write_text("a\nb\n")
    code, said, err = cli("data", "check", f"masks:{tmp_path}")
    assert code == 0, err
    assert "1 file is passed over" in said
    assert "9.png: a map of labels without an image" in " ".join(said.split())
    record = json.loads(cli("data", "check", f"masks:{tmp_path}", "--json")[1])
    assert [one["reason"] for one in record["passed_over"]] == ["a map of labels without an image"]
