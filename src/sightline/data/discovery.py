"""Sources by name: every file in `sources/` is one, and so may a plug-in be."""

from __future__ import annotations

from pathlib import Path

from sightline import registry
from sightline.checks import require
from sightline.data.source import Source
from sightline.errors import InputError

_SOURCES = "sightline.data.sources"


def list_sources() -> tuple[str, ...]:
    """The names of all data sets, sorted."""
    return tuple(sorted(registry.classes(Source, _SOURCES)))


def source_class(name: str) -> type[Source]:
    """The class of a data set.

    Raises:
        InputError: no data set has this name.
    """
    found = registry.classes(Source, _SOURCES)
    require("data set", name, found)
    return found[name]


def open_source(spec: str) -> Source:
    """A data set from `name` or `name:argument`: "scenes", "scenes:pairs", "digits", "imagefolder:DIR".

    Raises:
        InputError: the name or the argument is not known.
    """
    name, _, argument = spec.partition(":")
    if name not in list_sources() and Path(spec).exists():
        raise InputError(f"data {spec}: a path alone; did you mean {_kind_of(Path(spec))}:{spec}?")
    return source_class(name).open(argument)


def _kind_of(path: Path) -> str:
    """The data set that a path looks like."""
    if path.suffix == ".tar" or any(path.glob("*.tar")):
        return "wds"
    saved = ("dataset_dict.json", "state.json", "*.parquet", "data/*.parquet")
    return "hf" if any(any(path.glob(pattern)) for pattern in saved) else "imagefolder"
