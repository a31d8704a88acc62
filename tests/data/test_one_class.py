"""Label maps of which all pixels are of one class: nothing can be learned of them, and what to do is said."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sightline.data import paired
from sightline.data.open import open_source
from sightline.errors import InputError
from tests.data import dense_folders


@pytest.fixture
def made(tmp_path):
    """A folder of images with masks of these numbers, four of each split."""

    def make(*values, names=()):
        root = tmp_path / "data"
        for split, seed in (("train", 0), ("val", 10)):
            for number in range(4):
                random = np.random.default_rng(seed + number)
                dense_folders.picture(root / "images" / split / f"{number}.png", (32, 32), seed + number)
                path = root / "masks" / split / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                kind = np.uint16 if max(values) > 255 else np.uint8
                Image.fromarray(random.choice(np.array(values, kind), (32, 32))).save(path)
        if names:
            (root / "classes.txt").write_text("\n".join(names))
        return f"masks:{root}"

    return make


def opened(spec: str) -> Any:
    return open_source(spec)


TINY = ("--model", "vit_micro_patch4", "--resolution", 32, "--images", 8)


@pytest.mark.parametrize("names", [(), ("sky", "ground")])
def test_masks_of_0_and_255_are_refused_and_the_way_on_runs(cli, made, tmp_path, names):
    data = made(0, 255, names=names)
    code, said, _ = cli("data", "check", data, "--json")
    assert code == 0
    record = json.loads(said)
    zeros, *others = record["pixels"]["train"].values()
    assert list(record["pixels"]["train"]) == list(names or ["0"])
    assert not any(others)
    assert record["ignored"]["values"] == [255]
    assert record["ignored"]["pixels"]["train"] == 4 * 32 * 32 - zeros
    assert f"--data {data},values=0+255 " in record["next"]
    words = ("train", "--task", "segmentation", "--out", tmp_path / "run", *TINY)
    code, _, err = cli(*words, "--data", data)
    assert code == 2, err
    [way] = re.findall(r"masks:\S+values=0\+255", err)
    assert not (tmp_path / "run").exists()
    code, _, err = cli(*words, "--data", way)
    assert code == 0, err


@pytest.mark.parametrize(("stored", "named", "refused"), [
    ((0, 128), False, False), ((300, 400), False, True),
])  # fmt: skip
def test_numbers_that_do_not_count_from_0_are_said_and_the_way_on_runs(cli, made, tmp_path, stored, named, refused):
    data = made(*stored, names=("sky", "ground") if named else ())
    way = f"{data},values={'+'.join(map(str, stored))}"
    words = ("train", "--task", "segmentation", *TINY)
    code, _, err = cli(*words, "--data", data, "--out", tmp_path / "run")
    assert ((code != 0), (tmp_path / "run").exists()) == (refused, not refused), err
    [said] = [line for line in err.splitlines() if "values=" in line]
    assert re.findall(r"masks:[^\s,]+,values=[0-9+]+", said) == [way]
    code, out, err = cli("data", "check", data)
    above, _, below = out.partition("next: ")
    assert (way in above, f"--data {way} " in below) == ((True, True) if out else (False, False))
    assert out or way in err
    assert cli(*words, "--data", way, "--out", tmp_path / "again")[0] == 0
    code, out, err = cli("data", "check", way)
    assert (code, "values" in out.partition("next: ")[0]) == (0, False), err


@pytest.mark.parametrize("stored", [(0, 1), (0, 1, 2, 4, 255), (0, 3), (0, 2, 5)])
def test_numbers_that_nearly_count_from_0_are_left_as_they_are(made, stored):
    warned = []
    opened(made(*stored)).check_classes(warned.append)
    assert warned == []


def test_values_are_classes_in_their_order(made):
    source = opened(made(3, 255, 1000) + ",values=1000+3")
    assert source.pixel_classes == ("1000", "3")
    assert set(np.unique(source.example("test", 0, (32, 32)).target.pixels)) == {0, 1, 255}
    source = opened(made(0, 255) + ",values=255+0,minival=0.5")
    assert source.length("minival") == 2
    pixels = source.example("test", 0, (32, 32)).target.pixels
    assert set(np.unique(pixels)) == {0, 1}


@pytest.mark.parametrize("kind", ["ade20k", "voc", "cityscapes", "masks"])
def test_reading_stops_at_the_second_class_and_is_remembered(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    root = dense_folders.WRITERS[kind](tmp_path / "data")
    (root / "classes.txt").write_text("\n".join("abcdefg"))
    opened(f"{kind}:{root}")
    read, real = [], paired.read_label_map
    monkeypatch.setattr(paired, "read_label_map", lambda path, **options: read.append(path) or real(path, **options))
    for _ in range(2):
        opened(f"{kind}:{root}").check_classes()
        assert len(read) == 1


def test_other_data_sets_of_pixels_too(tmp_path):
    root = dense_folders.ade20k(tmp_path)
    for path in root.glob("annotations/training/*"):
        with Image.open(path) as image:
            Image.fromarray((np.asarray(image) > 0).astype(np.uint8) * 7).save(path)
    with pytest.raises(InputError, match="0 is"):
        opened(f"ade20k:{root}").check_classes()
