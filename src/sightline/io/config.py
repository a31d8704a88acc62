"""The one way to check a configuration: frozen pydantic dataclasses, strictly, and one line for what is refused."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass, is_pydantic_dataclass

from sightline.errors import InputError, unknown_name_error, validation_error

T = TypeVar("T")

CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)
# Of float32, in which models compute.
_LARGEST = (2 - 2**-23) * 2.0**127


def _pair(value: Any) -> Any:
    return (value, value) if type(value) is int else _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
NonNegative = Annotated[float, Field(ge=0, le=_LARGEST)]
Positive = Annotated[float, Field(gt=0, le=_LARGEST)]
AboveOne = Annotated[float, Field(gt=1, le=_LARGEST)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
"""From 0 to 1, which itself is none."""
Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
Pair = Annotated[tuple[Count, Count], BeforeValidator(_pair)]
"""(rows, cols), or one number for both."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field, Field))
def config_dataclass(cls: type[T]) -> type[T]:
    """A frozen dataclass of keywords whose values pydantic checks by their annotations.

    "1" is not taken for 1, nor 1 for true; a list is for a tuple and a whole number for a float. What is refused is an
    InputError here as in `build_config`.
    """
    made: Any = dataclass(frozen=True, kw_only=True, config=CHECKED)(cls)
    checked = made.__init__

    @functools.wraps(checked)
    def init(self: Any, **values: Any) -> None:
        try:
            checked(self, **{name: _tuples(value) for name, value in values.items()})
        except ValidationError as error:
            raise validation_error(error, made.__name__, made) from None

    made.__init__ = init
    return made


def build_config(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a configuration from keyword values, as YAML and JSON have them.

    Args:
        cls: made by `config_dataclass`; or any other dataclass, which checks its values itself.
        values: by the names of its fields; groups may be dataclasses or mappings.
        where: what an error begins with, as "encoding lookhere".

    Raises:
        InputError: an unknown key (names the nearest), or a value that is refused.
    """
    if not is_pydantic_dataclass(cls):
        allowed = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in values:
            if key not in allowed:
                raise unknown_name_error(f"{where}: option", key, allowed)
        return cls(**values)
    plain = {str(key): _to_json(value, str(key), where) for key, value in values.items()}
    text = ", ".join(f"{json.dumps(key)}: {value}" for key, value in plain.items())
    try:
        # As JSON: there strict means a list for a tuple and a mapping for a dataclass, and nothing looser.
        return TypeAdapter(cls).validate_json(f"{{{text}}}")
    except ValidationError as error:
        raise validation_error(error, where, cls) from None


def _to_json(value: object, key: str, where: str) -> str:
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError):
        said = f"{where}: {key} is a {type(value).__name__}, expected text, numbers, true, false, or lists of them"
        raise InputError(said, field=key, value=value) from None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
