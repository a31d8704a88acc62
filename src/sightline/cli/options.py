"""Options that several commands take, said once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, convert

from sightline.errors import known_as, near

if TYPE_CHECKING:
    from cyclopts import Token


def convert_strictly(kind: type, tokens: Sequence[Token]) -> Any:
    """As cyclopts does, but a fraction is no whole number: its own rule rounds 1.5."""
    if kind is int and "." in tokens[0].value:
        raise ValueError(f'"{tokens[0].value}" is no whole number (int)')
    return convert(kind, tokens)


def _whole(_: object, tokens: Sequence[Token]) -> int:
    return convert_strictly(int, tokens)


def _skip(_: object, tokens: Sequence[Token]) -> int | Literal["all"]:
    from sightline.data.config import SkipUnreadable as Skip
    from sightline.io.config import check_value

    word = tokens[0].value
    number = int(word) if word.removeprefix("-").isdecimal() and word.isascii() and len(word) < 20 else word
    return check_value("--skip-unreadable", number, Skip)


def _pixels(_: object, tokens: Sequence[Token]) -> int:
    from sightline.io.config import Count, check_value

    pixels = convert_strictly(int, tokens)
    check_value("--max-pixels", pixels, Count)
    return pixels


def _spelled(_: object, tokens: Sequence[Token]) -> str:
    from sightline.data.open import spelled

    return spelled(tokens[0].value)


def option_names(command: Callable[..., Any]) -> set[str]:
    """What a command takes, by the names of its parameters and of the fields of those that are groups of options."""
    names = set(inspect.signature(command).parameters)
    groups = [one.default for one in inspect.signature(command).parameters.values() if is_dataclass(one.default)]
    return names.union(field.name for group in groups for field in fields(group))


def meant(option: str, taken: Iterable[str], *, trains: bool = False) -> str:
    """What was probably meant by an option that a command does not have, as `--resolution` or `--set optimizer.lr=...`,
    or ""; `taken`: the options that it has; `trains`: it has the settings of a run too."""
    from sightline.cli.commands.train import train
    from sightline.training.config import OptimizerConfig, TrainConfig

    name = option.partition("=")[0].lstrip("-").replace("-", "_").removeprefix("optimizer.")
    settings = {one.name: f"--set optimizer.{one.name}=..." for one in fields(OptimizerConfig)}
    settings |= {one.name: f"--set {one.name}=..." for one in fields(TrainConfig)}
    options = {one.lstrip("-").replace("-", "_"): one for one in taken}
    here = {**settings, **options} if trains else options
    elsewhere = settings.keys() - option_names(train)
    if not known_as(name, here) and (there := known_as(name, elsewhere)):
        return f"sightline train {settings[there[0]]}"
    return " or ".join(here[one] for one in near(name, here))


_SKIP = Parameter(
    help="Images of a split that may be left out because they cannot be read: a number, or all.",
    allow_leading_hyphen=True,
    converter=_skip,
)
SkipUnreadable = Annotated[int | Literal["all"], _SKIP]
SkipAsTrained = Annotated[int | Literal["all"] | None, _SKIP]
MaxPixels = Annotated[
    int | None,
    Parameter(help="Width times height of the largest image that is read; 89478485 unless given.", converter=_pixels),
]
RunOrModel = Annotated[Path, Parameter(help="The folder of a run or of a model.")]
AnyModel = Annotated[Path, Parameter(help="The folder of a run or of a model, hf-hub:OWNER/NAME, or timm:NAME.")]
Data = Annotated[str, Parameter(converter=_spelled)]
AnyData = Annotated[str | None, Parameter(converter=_spelled)]
DataToMeasure = Annotated[AnyData, Parameter(help="The data set; the one that it was trained on unless given.")]
PatchSize = Annotated[
    int | None,
    Parameter(
        help="Side of the patches in pixels, instead of the model's own: its patch embedding is resized "
        "(docs/FAMILIES.md). Must divide the model's images."
    ),
]
MostImages = Annotated[
    int | None, Parameter(help="At most this many of a split; 2000 of an embedded one unless given.")
]
Settings = Annotated[tuple[str, ...], Parameter(name="--set")]
Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
Device = Annotated[str, Parameter(help="auto, cpu, cuda, cuda:1, mps.")]
Whole = Annotated[int | None, Parameter(converter=_whole)]
"""A whole number in a group of options, which does not take the converter of all."""
Threads = Annotated[int | None, Parameter(help="Processor threads; all cores unless given.", converter=_whole)]
Precision = Annotated[str, Parameter(help="auto, float32 or bfloat16.")]
JsonObject = Annotated[bool, Parameter(help="Print a JSON object instead.")]
Json = Annotated[bool, Parameter(help="Print a JSON object a line instead of tables.")]
