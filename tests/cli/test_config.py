"""Options that are made of a configuration: what is given is read as YAML, nested, and nothing else is."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

import pytest
from cyclopts import App, Parameter

from sightline.cli.options import collect_settings, command_line_settings, settings_class
from sightline.errors import InputError
from sightline.io.config import config_dataclass
from sightline.runs.options import KeyOptions


@config_dataclass
class Inner:
    """A group.

    Attributes:
        lr: a rate.
        betas: of the moments.
    """

    lr: float = 1.0
    betas: tuple[float, float] | None = None


@config_dataclass
class Outer:
    """A configuration.

    Attributes:
        name: a text.
        count: how many.
        sides: some numbers.
        fast: a switch.
        kind: of two.
        optimizer: a group.
        packing: a group that may be none.
        options: by name.
    """

    name: str = "n"
    count: int | None = None
    sides: tuple[int, ...] = ()
    fast: bool = True
    kind: Literal["a", "b"] = "a"
    optimizer: Inner = field(default_factory=Inner)
    packing: Inner | None = None
    options: dict[str, Any] = field(default_factory=dict)


Settings: Any = settings_class(Outer)


def run(*words: str) -> tuple[dict[str, Any], Any]:
    app = App(
        config=(collect_settings,), result_action="return_value", print_error=False, exit_on_error=False,
        default_parameter=Parameter(negative=()),
    )  # fmt: skip

    @app.default
    def command(
        *, settings: Annotated[Settings | None, Parameter(name="*")] = None, other: int = 3, more: KeyOptions = None
    ):
        return command_line_settings(), (other, more)

    return app(list(words))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--count", "3"], {"count": 3}),
        (["--count=-3"], {"count": -3}),
        (["--count", "null"], {"count": None}),
        (["--name", "12"], {"name": "12"}),
        (["--optimizer.lr", "1e-3"], {"optimizer": {"lr": 1e-3}}),
        (["--lr", "1e-3"], {"optimizer": {"lr": 1e-3}}),
        (["--optimizer.betas", ".9", ".99"], {"optimizer": {"betas": [0.9, 0.99]}}),
        (["--optimizer.betas=.9,.99"], {"optimizer": {"betas": [0.9, 0.99]}}),
        (["--optimizer.betas", "[.9, .99]"], {"optimizer": {"betas": [0.9, 0.99]}}),
        (["--sides", "16"], {"sides": [16]}),
        (["--packing", "null"], {"packing": None}),
        (["--packing", "{lr: 2}"], {"packing": {"lr": 2}}),
        (["--packing.lr", "2"], {"packing": {"lr": 2}}),
        (["--fast"], {"fast": True}),
        (["--fast=false"], {"fast": False}),
        (["--no-fast"], {"fast": False}),
        (["--options.a_b.c", "[1, x]", "--options.d", "no"], {"options": {"a_b": {"c": [1, "x"]}, "d": "no"}}),
        (["--options", "{a: {}}"], {"options": {"a": {}}}),
    ],
)
def test_what_is_given(words, given):
    assert run(*words) == (given, (3, None))


@pytest.mark.parametrize("words", [["--packing", "null", "--packing.lr", "2"], ["--count", "[1"], ["--more.a", "*b"]])
def test_words_that_are_refused(words):
    with pytest.raises(InputError):
        run(*words)
