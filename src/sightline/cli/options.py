"""What was meant by an option that a command does not have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from sightline.errors import known_as, near


def option_names(command: Callable[..., Any]) -> set[str]:
    """What a command takes, by the names of its parameters and of the fields of those that are groups of options."""
    parameters = inspect.signature(command, eval_str=True).parameters
    kinds = [kind for one in parameters.values() for kind in (one.annotation, *get_args(one.annotation))]
    groups = [kind for kind in kinds if is_dataclass(kind)]
    return {*parameters, *(field.name for group in groups for field in fields(group))}


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
