"""Configurations: what is taken, and which key, value and nearest name a refusal says."""

from __future__ import annotations

import dataclasses
import math
import pickle
from typing import Any, Literal

import pytest

from sightline.errors import InputError
from sightline.io.config import Count, Fraction, Index, Pair, Positive, build_config, config_dataclass, dump_config


@config_dataclass
class Base:
    at: Literal["input", "every"] = "input"


@config_dataclass
class Config(Base):
    rate: Positive = 1.0
    share: Fraction = 0.0
    count: Count | None = None
    norm: bool | Literal["heads"] = False
    pairs: tuple[Index, Index] | None = None
    words: str | tuple[str, ...] | None = None
    grid: Pair = (1, 1)
    base: Base = dataclasses.field(default_factory=Base)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.norm == "heads" and self.count is None:
            raise InputError("count null: expected a number with norm 'heads'", field="count")


def direct(values: dict[str, Any]) -> Config:
    return Config(**values)


def built(values: dict[str, Any]) -> Config:
    return build_config(Config, values, "here")


@pytest.mark.parametrize("make", [direct, built])
def test_what_is_taken(make) -> None:
    config = make({"rate": 3, "norm": "heads", "count": 2, "pairs": [0, 1], "words": ["a"], "grid": 4})
    assert config == Config(rate=3.0, norm="heads", count=2, pairs=(0, 1), words=("a",), grid=(4, 4))
    assert isinstance(config.rate, float)
    assert make({"grid": [2, 3], "more": {"x": [1]}}).grid == (2, 3)
    assert make({"base": Base(at="every")}).base.at == "every"
    assert pickle.loads(pickle.dumps(config)) == dataclasses.replace(config) == config
    assert hash(make({"at": "every"}).base) == hash(Base())


WRONG = [
    ({"rate": 0}, "rate", 0, "more than 0"),
    ({"rate": "1"}, "rate", "1", "finite number"),
    ({"rate": True}, "rate", True, "finite number"),
    ({"rate": math.inf}, "rate", math.inf, "finite number"),
    ({"rate": 1e39}, "rate", 1e39, "at most 3.4"),
    ({"rate": None}, "rate", None, "finite number"),
    ({"share": 1}, "share", 1, "less than 1"),
    ({"count": 0}, "count", 0, "at least 1"),
    ({"count": 1.0}, "count", 1.0, "whole number"),
    ({"count": True}, "count", True, "whole number"),
    ({"norm": 1}, "norm", 1, "true or false or 'heads'"),
    ({"norm": "heads"}, "count", None, "norm 'heads'"),
    ({"pairs": 3}, "pairs", 3, "a list"),
    ({"pairs": [1, -1]}, "pairs[1]", -1, "at least 0"),
    ({"words": ["a", 3]}, "words[1]", 3, "text"),
    ({"grid": [2, 0]}, "grid[1]", 0, "at least 1"),
    ({"grid": "2"}, "grid", "2", "a list"),
    ({"at": "evry"}, "at", "evry", "did you mean 'every'?"),
    ({"base": 3}, "base", 3, "group of keys"),
    ({"rat": 3}, "rat", 3, "did you mean 'rate'?"),
]


@pytest.mark.parametrize("make", [direct, built])
@pytest.mark.parametrize(("values", "field", "value", "word"), WRONG)
def test_what_is_refused(make, values, field: str, value: object, word: str) -> None:
    with pytest.raises(InputError) as caught:
        make(values)
    said = str(caught.value)
    given = caught.value.value
    assert (caught.value.field, list(given) if isinstance(given, tuple) else given) == (field, value)
    assert field in said
    assert word in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("values", "field", "word"),
    [
        ({"pairs": [1]}, "pairs", "more entries"),
        ({"pairs": [1, 2, 3]}, "pairs", "at most 2 entries"),
        ({"base": {"att": "every"}}, "base.att", "did you mean 'at'?"),
        ({"base": {"at": 3}}, "base.at", "one of input, every"),
        ({"rate": {1, 2}}, "rate", "is a set"),
        ({"more": {"x": object()}}, "more", "expected text, numbers"),
    ],
)
def test_groups_and_lists_that_are_refused(values, field: str, word: str) -> None:
    with pytest.raises(InputError, match=rf"^here: .*{word}") as caught:
        built(values)
    assert caught.value.field == field


def test_a_dumped_configuration_comes_back_equal() -> None:
    config = Config(rate=1e-3, words=("a", "b"), base=Base(at="every"), more={"x": [1.5, None]})
    assert built(dump_config(config)) == config
