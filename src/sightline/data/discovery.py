"""Sources by name: every file in `sources/` is one."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from sightline.data import sources
from sightline.data.source import Source
from sightline.errors import InputError, choose


def list_sources() -> tuple[str, ...]:
    """The names of all data sets, sorted; none of them is imported."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(sources.__path__)))


def source_class(name: str) -> type[Source]:
    """The class of a data set.

    Raises:
        InputError: no data set has this name.
    """
    if name not in list_sources():
        raise choose("data set", name, list_sources())
    module = importlib.import_module(f"{sources.__name__}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Source) and value.__dict__.get("name") == name:
            return value
    raise TypeError(f"{module.__name__} defines no Source named {name!r}")


def open_source(spec: str) -> Source:
    """A data set from `name` or `name:argument`: "scenes", "scenes:pairs", "digits", "imagefolder:DIR".

    Raises:
        InputError: the name or the argument is not known.
    """
    name, _, argument = spec.partition(":")
    if name not in list_sources() and Path(spec).exists():
        raise InputError(f"data {spec}: a path alone; did you mean imagefolder:{spec}?")
    return source_class(name).open(argument)
