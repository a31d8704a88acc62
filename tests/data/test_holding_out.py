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


def test_data_without_splits_is_divided(tmp_path):
    pictures(tmp_path / "data", classes=("a", "b", "c", "d"), count=50)
    flat = f"imagefolder:{tmp_path}/data/train"
    whole, divided, both = (open_source(flat + one) for one in ("", ",test=0.2", ",minival=0.1,test=0.2"))
    every = names(whole, "test")
    chosen = [every[index] for index in sorted(generator("test/1", 0).permutation(200)[160:])]
    assert (divided.splits, names(divided, "test")) == (("train", "test"), chosen)
    assert names(divided, "train") == [name for name in every if name not in chosen]
    # The test is divided off first, whatever the order.
    assert (both.splits, names(both, "test")) == (("train", "minival", "test"), chosen)
    assert len(names(both, "minival")) == 16
    assert sorted(names(both, "train") + names(both, "minival")) == sorted(names(divided, "train"))
    assert divided.validation_split is None
    assert divided.fingerprint("train").digest == divided.fingerprint("test").digest
    # Beside a train without a test, a part of it is; one that has a test keeps it.
    shutil.rmtree(tmp_path / "data" / "test")
    assert names(open_source(f"imagefolder:{tmp_path}/data,test=0.2"), "test") == chosen
    pictures(tmp_path / "other", count=8)
    with pytest.raises(InputError, match="test"):
        open_source(f"imagefolder:{tmp_path}/other,test=0.2")


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
