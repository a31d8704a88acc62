"""A minival made of train: the last of a permutation that is the same for every run, in every kind of data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sightline.data.open import open_source
from sightline.data.rng import generator
from sightline.errors import InputError
from tests.data.three_kinds import images, made
from tests.tiny import pictures


def names(source, split):
    return [source.example_name(split, index) for index in range(source.length(split))]


def test_the_last_of_a_permutation(tmp_path):
    data = pictures(tmp_path / "data", classes=("a", "b", "c", "d"), count=50)
    whole, held = open_source(data), open_source(f"{data},minival=0.1")
    every = names(whole, "train")
    last = generator("minival/1", 0).permutation(200)[180:]
    assert names(held, "minival") == [every[index] for index in sorted(last)]
    assert names(held, "train") == [name for name in every if name not in names(held, "minival")]
    assert held.splits == ("train", "minival", "test")
    assert names(held, "test") == names(whole, "test")
    assert {held.classes[held.example("minival", one, (8, 8)).target.label] for one in range(20)} == set("abcd")
    # Of the folder, whatever share: the name of the data says the rest.
    assert held.fingerprint("train").digest == whole.fingerprint("train").digest


def test_every_kind_of_data_holds_out_the_same(tmp_path):
    shown = {}
    with made(tmp_path, images(count=12)) as data:
        for kind, spec in data.items():
            held = open_source(f"{spec},minival=0.3")
            shown[kind] = [held.example("minival", one, (8, 8)).image.tobytes() for one in range(7)]
    assert shown["imagefolder"] == shown["hf"] == shown["wds"]


def test_an_image_that_stands_twice_stays_in_train(tmp_path):
    data = pictures(tmp_path / "data", count=20)
    held = open_source(f"{data},minival=0.3")
    moved = names(held, "minival")[0]
    kept = names(held, "train")[0]
    Path(kept).write_bytes(Path(moved).read_bytes())
    again = open_source(f"{data},minival=0.3")
    assert moved in names(again, "train")
    assert len(names(again, "minival")) == len(names(held, "minival")) - 1


def test_a_minival_of_its_own_stays(tmp_path):
    data = pictures(tmp_path / "data", count=8)
    (tmp_path / "data" / "test").rename(tmp_path / "data" / "minival")
    for spec in (data, "scenes:pairs"):
        with pytest.raises(InputError, match="minival"):
            open_source(f"{spec},minival=0.1")
    (tmp_path / "data" / "minival").rename(tmp_path / "data" / "validation")
    for name in ("a", "b"):
        (tmp_path / "data" / "test" / name).mkdir(parents=True)
        (tmp_path / "data" / "validation" / name / "0.png").rename(tmp_path / "data" / "test" / name / "0.png")
    with pytest.raises(InputError, match="validation"):
        open_source(f"{data},minival=0.1")
    # Nothing is held out of what is not there.
    for split in ("train", "validation"):
        shutil.rmtree(tmp_path / "data" / split)
    with pytest.raises(InputError, match="train"):
        open_source(f"{data},minival=0.1")
