"""A minival made of train: the last of a permutation that is the same for every run, in every kind of data."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sightline.data.open import open_source, parse_spec
from sightline.data.rng import generator
from sightline.errors import InputError
from sightline.training.config import ValidationConfig
from sightline.training.run import open_run
from tests.data.three_kinds import images, made
from tests.tiny import log_lines, pictures, tiny_config, train, weights


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


def test_what_is_held_out_is_not_augmented(tmp_path):
    held = open_source(f"{pictures(tmp_path / 'data', count=20)},minival=0.25")
    first, again = (held.example("minival", 3, (8, 12), seed=seed, epoch=seed).image for seed in (0, 5))
    assert np.array_equal(first, again)


def test_every_kind_of_data_holds_out_the_same(tmp_path):
    shown = {}
    with made(tmp_path, images(count=12)) as data:
        for kind, spec in data.items():
            held = open_source(f"{spec},minival=0.3")
            shown[kind] = [
                held.example("minival", one, (8, 8)).image.tobytes() for one in range(held.length("minival"))
            ]
            assert len(shown[kind]) > 1
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


def test_an_unreadable_image_moves_no_other(tmp_path):
    data = pictures(tmp_path / "data", count=20)
    before = open_source(f"{data},minival=0.3")
    gone = names(before, "train")[4]
    Path(gone).write_bytes(b"no image")
    after, left = open_source(f"{data},minival=0.3").check_readable("train", skip_unreadable=1)
    assert [one.path for one in left] == [gone]
    assert names(after, "minival") == names(before, "minival")
    assert names(after, "train") == [name for name in names(before, "train") if name != gone]


@pytest.mark.parametrize(
    ("share", "says"),
    [
        ("1", r"minival=1 \(expected a share of train between 0 and 1"),
        ("0", r"minival=0 \(expected a share"),
        ("much", r"minival=much \(expected a share"),
        ("0.01", r"minival=0.01 of 16 images of train holds out 0 \(expected at least 1"),
    ],
)
def test_what_cannot_be_held_out_is_refused(share, says, tmp_path):
    data = pictures(tmp_path / "data", count=8)
    with pytest.raises(InputError, match=says):
        open_source(f"{data},minival={share}")


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


def test_where_there_is_no_train_nothing_can_be_held_out_of_it(tmp_path):
    data = pictures(tmp_path / "data", count=8)
    shutil.rmtree(tmp_path / "data" / "train")
    with pytest.raises(InputError, match="train"):
        open_source(f"{data},minival=0.1")


def test_it_stands_anywhere_among_options():
    assert parse_spec("hf:DIR,minival=0.1,image=img") == ("hf", "DIR,image=img", "0.1")
    assert parse_spec("imagefolder:a,b/c") == ("imagefolder", "a,b/c", None)
    assert parse_spec("imagefolder:x,minival=1/y") == ("imagefolder", "x,minival=1/y", None)


def test_a_run_is_validated_on_it_and_goes_on_with_it(tmp_path):
    data = f"{pictures(tmp_path / 'data', count=24)},minival=0.2"
    config = tiny_config(
        data=data, images=None, epochs=3.0, batch_size=8, checkpoint_every=16, validation=ValidationConfig(times=2)
    )
    train(config, tmp_path / "whole")
    asked = iter(range(100))
    with pytest.raises(Exception, match="step 4"):
        train(config, tmp_path / "parts", stop=lambda: next(asked) >= 3)
    train(config, tmp_path / "parts", resume=True)
    assert log_lines(tmp_path / "whole") == log_lines(tmp_path / "parts")
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "validation.jsonl").read_text().splitlines()]
    assert {line["count"] for line in lines} == {9}
    assert open_run(tmp_path / "whole").source.length("minival") == 9
    with pytest.raises(InputError, match=r"data .*minival=0.2'"):
        train(dataclasses.replace(config, data=data.replace("0.2", "0.3")), tmp_path / "whole", resume=True)
