"""Configurations: what is wrong is named by its key, its value and what is allowed; what is right comes back equal."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Le, Len, Lt
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sightline.cli.config import apply_settings, check_config, dump_config
from sightline.errors import InputError
from sightline.io.checks import STRICT
from sightline.training.config import TrainConfig


class Loss(enum.Enum):
    BCE = "bce"
    CE = "ce"


@dataclass(frozen=True)
class Optimizer:
    __pydantic_config__ = STRICT

    lr: Annotated[float, Gt(0)] = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    loss: Loss = Loss.BCE


@dataclass(frozen=True)
class Stage:
    __pydantic_config__ = STRICT

    depth: Annotated[int, Ge(1), Le(100)]


@dataclass(frozen=True)
class Config:
    __pydantic_config__ = STRICT

    name: str
    optimizer: Optimizer = field(default_factory=Optimizer)
    pool: Literal["cls", "mean", "attention"] = "cls"
    epochs: int | None = None
    resolutions: Annotated[tuple[int, ...], Len(1)] = (32,)
    stages: tuple[Stage, ...] = ()
    ema: Optimizer | None = None
    ablate: bool = False
    out: Path = Path("runs/a")
    encoding: dict[str, Any] = field(default_factory=dict)
    heads: int = 3
    dim: int = 48

    def __post_init__(self) -> None:
        if self.dim % self.heads:
            raise ValueError(f"dim = {self.dim} is not divisible by heads = {self.heads}")


def refused(mapping: Any, *words: str) -> None:
    with pytest.raises(InputError) as error:
        check_config(Config, {"name": "a", **mapping}, "train.yaml")
    message = str(error.value)
    assert message.startswith("train.yaml: ")
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"leraning_rate": 1}, ["key leraning_rate is not known", "allowed: name, optimizer"]),
        ({"optimizer": {"lrr": 1}}, ["optimizer.lrr", "did you mean 'lr'?", "allowed: lr, betas, dropout, loss"]),
        ({"optimizer": {"lr": "fast"}}, ['optimizer.lr = "fast"', "a number greater than 0"]),
        ({"optimizer": {"lr": "0.1"}}, ['optimizer.lr = "0.1"', "a number"]),
        ({"optimizer": {"lr": -1}}, ["optimizer.lr = -1", "greater than 0"]),
        ({"optimizer": {"lr": True}}, ["optimizer.lr = true", "a number"]),
        ({"optimizer": {"lr": None}}, ["optimizer.lr = null"]),
        ({"optimizer": {"lr": float("nan")}}, ["optimizer.lr = nan", "finite"]),
        ({"optimizer": {"lr": float("inf")}}, ["optimizer.lr = inf", "finite"]),
        ({"optimizer": {"dropout": 1.5}}, ["optimizer.dropout = 1.5", "of at least 0 and less than 1"]),
        ({"optimizer": {"betas": [0.9]}}, ["optimizer.betas = [0.9]", "a list of 2"]),
        ({"optimizer": {"betas": [0.9, "x"]}}, ["optimizer.betas", "a list of 2: a number, a number"]),
        ({"optimizer": {"loss": "bcee"}}, ["optimizer.loss", "one of bce, ce", "did you mean 'bce'?"]),
        ({"optimizer": 3}, ["optimizer = 3", "a group of keys (lr, betas"]),
        ({"pool": "men"}, ['pool = "men"', "one of cls, mean, attention", "did you mean 'mean'?"]),
        ({"pool": 3}, ["pool = 3", "one of cls, mean, attention"]),
        ({"epochs": 1.5}, ["epochs = 1.5", "a whole number or null"]),
        ({"epochs": "3"}, ['epochs = "3"']),
        ({"epochs": True}, ["epochs = true"]),
        ({"resolutions": []}, ["resolutions = []", "with at least 1 entries"]),
        ({"resolutions": [32, "x"]}, ["resolutions", "a list, each a whole number"]),
        ({"stages": [{"depth": 2}, {"depth": 0}]}, ["stages[1].depth = 0", "of at least 1 and of at most 100"]),
        ({"stages": [{"width": 2}]}, ["stages[0].width is not known"]),
        ({"stages": [{}]}, ["stages[0].depth is missing", "a whole number"]),
        ({"ema": {"lr": "x"}}, ["ema.lr"]),
        ({"ablate": 1}, ["ablate = 1", "true or false"]),
        ({"ablate": "yes"}, ["ablate", "true or false"]),
        ({"name": 3}, ["name = 3", "expected text"]),
        ({"name": None}, ["name = null"]),
        ({"encoding": {"slope": float("nan")}}, ["encoding.slope = nan"]),
        ({"encoding": {1: 2}}, ["key encoding.1 is not text"]),
        ({"encoding": {"x": {1, 2}}}, ["encoding.x is a set"]),
        ({"heads": 5}, ["dim = 48 is not divisible by heads = 5"]),
    ],
)
def test_what_is_refused(mapping, words):
    refused(mapping, *words)


def test_no_group_of_a_run_drops_a_key_that_it_does_not_know():
    schema = TypeAdapter(TrainConfig).json_schema()
    groups = {"TrainConfig": schema, **schema["$defs"]}
    assert {"OptimizerConfig", "ValidationConfig", "PackingConfig", "MixingConfig"} <= set(groups)
    assert [name for name, one in groups.items() if one["additionalProperties"] is not False] == []


def test_a_missing_key_is_named():
    with pytest.raises(InputError, match=r"^here: key name is missing; expected text$"):
        check_config(Config, {}, "here")


@pytest.mark.parametrize("value", [[1], "text", None, 3])
def test_not_a_mapping(value):
    with pytest.raises(InputError, match="expected a group of keys"):
        check_config(Config, value)


def test_what_is_accepted():
    config = check_config(
        Config,
        {
            "name": "a",
            "optimizer": {"lr": 1, "betas": [0, 0.5], "loss": "ce"},
            "epochs": None,
            "resolutions": [20, 32],
            "stages": [{"depth": 2}],
            "ema": {"lr": 0.5},
            "out": "runs/ä b",
            "encoding": {"name": "lookhere", "slopes": [1.5, None]},
        },
    )
    assert config == Config(
        name="a",
        optimizer=Optimizer(lr=1.0, betas=(0.0, 0.5), loss=Loss.CE),
        resolutions=(20, 32),
        stages=(Stage(2),),
        ema=Optimizer(lr=0.5),
        out=Path("runs/ä b"),
        encoding={"name": "lookhere", "slopes": [1.5, None]},
    )
    assert isinstance(config.optimizer.lr, float)
    assert check_config(Config, dump_config(config)) == config


@given(
    name=st.text(),
    lr=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    depths=st.lists(st.integers(1, 100)),
    epochs=st.none() | st.integers(),
    pool=st.sampled_from(["cls", "mean", "attention"]),
)
def test_a_dumped_configuration_comes_back_equal(name, lr, depths, epochs, pool):
    config = Config(name, Optimizer(lr=lr), pool, epochs, stages=tuple(map(Stage, depths)))
    assert check_config(Config, dump_config(config)) == config


def test_settings_are_put_in_and_the_mapping_is_left_alone():
    mapping = {"optimizer": {"lr": 1, "loss": "ce"}}
    merged = apply_settings(mapping, ["optimizer.lr=1e-3", "ema.lr=2", "resolutions=[20, 32]", "name=a=b", "epochs="])
    assert merged == {
        "optimizer": {"lr": 1e-3, "loss": "ce"},
        "ema": {"lr": 2},
        "resolutions": [20, 32],
        "name": "a=b",
        "epochs": None,
    }
    assert mapping == {"optimizer": {"lr": 1, "loss": "ce"}}
    assert check_config(Config, merged).optimizer.lr == 1e-3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["lr"], ["--set lr", "expected key=value"]),
        (["=3"], ["expected key=value"]),
        (["a..b=3"], ["expected key=value"]),
        (["a=1", "a=2"], ["a is set twice"]),
        (["a.b=1", "a={}"], ["a.b is set as well"]),
        (["a={}", "a.b=1"], ["a is set as well"]),
        (["name.x=1"], ['name is "n", not a group of keys']),
        (["a=[1"], ["--set a=[1", "not valid YAML"]),
        (["a=*b"], ["aliases"]),
    ],
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(InputError) as error:
        apply_settings({"name": "n"}, settings)
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_a_setting_gets_the_checks_of_a_file():
    with pytest.raises(InputError, match=r"optimizer\.lr = \"fast\": expected a number greater than 0"):
        check_config(Config, apply_settings({"name": "a"}, ["optimizer.lr=fast"]))
