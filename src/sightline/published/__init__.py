"""What papers printed: a paper is a table of its numbers (CSV) and what is said of them (TOML), found by its name.

Numbers are the papers', as they are printed there; nothing here was measured by this project. No torch here.
"""

from __future__ import annotations

import csv
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from sightline.errors import require_known


@dataclass(frozen=True, slots=True)
class Printed:
    """One number of a table.

    `method` and `model` are the paper's words, `encoding` the name that the method has here ("" where there is none).
    `metric`, with its parameters where it has some ("fgsm 1/255 top5"), is in the unit that the paper's tables say;
    `data` is the test set. `shown` is the side in pixels of a square, or a view as `tokens:N`; "" where the table does
    not say. `run` says which of several ("best" or "average" of a sweep, "fine-tuned"), `value` is as printed.
    """

    table: str
    method: str
    encoding: str
    model: str
    metric: str
    data: str
    shown: str
    run: str
    value: str

    @property
    def number(self) -> float:
        return float(self.value)


@dataclass(frozen=True)
class Curve:
    """Which numbers of a paper make its curve by resolution: lines of `metric` (in percent) on `data`.

    Attributes:
        trained: side in pixels of the training images.
        runs: which of several count, "" those of which there is one.
        said: of what models and data it is, in words.
    """

    metric: str
    data: str
    trained: int
    runs: tuple[str, ...]
    said: str


@dataclass(frozen=True)
class Paper:
    """A paper's tables: `tables` says what stands in each, by its number there."""

    name: str
    title: str
    authors: str
    year: int
    tables: Mapping[str, str]
    numbers: tuple[Printed, ...]
    curve: Curve | None

    def lines(self) -> dict[str, tuple[str, dict[int, Printed]]]:
        """Method -> its encoding here, and its numbers by the side of the test images, rising; none without a curve."""
        found: dict[str, tuple[str, dict[int, Printed]]] = {}
        if self.curve is not None:
            for one in self.numbers:
                what = one.metric, one.data, one.run in self.curve.runs, one.shown.isdecimal()
                if what == (self.curve.metric, self.curve.data, True, True):
                    found.setdefault(one.method, (one.encoding, {}))[1][int(one.shown)] = one
        return {method: (encoding, dict(sorted(line.items()))) for method, (encoding, line) in found.items()}


def papers() -> list[str]:
    """The names of the papers whose numbers are here."""
    return sorted(one.name.removesuffix(".toml") for one in files(__name__).iterdir() if one.name.endswith(".toml"))


def with_curves() -> list[str]:
    """Those of them that a page can draw: that have a curve by resolution."""
    return [name for name in papers() if paper(name).curve is not None]


@functools.cache
def paper(name: str) -> Paper:
    """The numbers of a paper.

    Raises:
        InputError: there is none of that name; says the nearest.
    """
    require_known("paper", name, papers())
    table, words = (files(__name__).joinpath(f"{name}.{kind}").read_text("utf-8") for kind in ("csv", "toml"))
    said: dict[str, Any] = tomllib.loads(words)
    curve = said.pop("curve", None)
    numbers = tuple(Printed(**line) for line in csv.DictReader(table.splitlines()))
    return Paper(name, **said, numbers=numbers, curve=curve and Curve(**{**curve, "runs": tuple(curve["runs"])}))
