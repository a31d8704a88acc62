"""`sightline.train` does what `sightline train` does."""

from __future__ import annotations

import dataclasses
import signal

import pytest

import sightline
from sightline.errors import InputError, StoppedError, UnreadableDataError
from sightline.evaluation import EvaluateConfig
from sightline.io.config import build_config
from sightline.io.yaml import read_yaml
from sightline.results.predictions import read_predictions
from sightline.results.rows import read_rows
from sightline.training import TrainConfig
from tests.tiny import MODEL, pictures, tiny_config, tree, weights

OPTIONS = [f"--model_options.{key}={value}" for key, value in MODEL.items()]


def measured(folder):
    return [dataclasses.replace(row, run="", seconds=0.0) for row in read_rows(folder / "results.jsonl")]


def test_a_call_leaves_what_the_command_leaves(cli, tmp_path):
    words = ["--data", f"{pictures(tmp_path / 'data', count=8)},minival=0.2", "--resolution", 16, "--images", 32]
    assert cli("train", *words, "--threads", 1, *OPTIONS, "--out", tmp_path / "a")[0] == 0
    config = build_config(TrainConfig, read_yaml(tmp_path / "a" / "config.yaml"), "config.yaml")
    seen, tested = [], []
    result = sightline.train(
        config, tmp_path / "b", observe=seen.append, on_tested=lambda done, total: tested.append((done, total))
    )
    assert sorted(tree(tmp_path / "a")) == sorted(tree(tmp_path / "b"))
    for name in ("config.yaml", "log.jsonl", "validation.jsonl"):
        assert (tmp_path / "a" / name).read_text() == (tmp_path / "b" / name).read_text()
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert measured(tmp_path / "a") == measured(tmp_path / "b")
    assert read_predictions(tmp_path / "a" / "predictions.csv") == read_predictions(tmp_path / "b" / "predictions.csv")
    assert result.rows == read_rows(tmp_path / "b" / "results.jsonl")
    assert (result.folder, result.config, result.last) == (tmp_path / "b", config, seen[-1])
    assert tested[-1] == (16, 16)


def test_a_test_of_ones_own_and_none(tmp_path):
    result = sightline.train(tiny_config(), tmp_path / "a", test=EvaluateConfig((16, 24), images=8))
    assert {row.resolution for row in result.rows} == {16, 24}
    result = sightline.train(tiny_config(), tmp_path / "b", test=False)
    assert (result.rows, result.measured) == ([], None)
    assert not (tmp_path / "b" / "results.jsonl").exists()
    with pytest.raises(InputError):
        sightline.train(tiny_config(), tmp_path / "b")


def test_ctrl_c_saves_and_the_caller_can_be_interrupted_again(tmp_path):
    def interrupt(at):
        if at.step == 2:
            signal.raise_signal(signal.SIGINT)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    config = tiny_config(images=128)
    with pytest.raises(StoppedError):
        sightline.train(config, tmp_path / "a", observe=interrupt)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    sightline.train(config, tmp_path / "a", resume=True, test=False)
    sightline.train(config, tmp_path / "b", test=False)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_images_that_are_tested_are_looked_at_before_the_training(tmp_path):
    config = tiny_config(data=pictures(tmp_path / "data"), images=8)
    damaged = next((tmp_path / "data" / "test").rglob("*.png"))
    damaged.write_bytes(b"no image")
    with pytest.raises(UnreadableDataError):
        sightline.train(config, tmp_path / "a")
    assert not (tmp_path / "a" / "checkpoint").exists()


def test_a_dictionary_is_no_configuration(tmp_path):
    with pytest.raises(InputError, match="TrainConfig") as raised:
        sightline.train({"data": "digits"}, tmp_path / "run")
    assert raised.value.field == "config"
    assert not (tmp_path / "run").exists()
