"""The one way to check a configuration: frozen pydantic dataclasses, strictly, and one line for what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, overload

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass, is_pydantic_dataclass

from sightline.errors import InputError, unknown_name_error, validation_error

T = TypeVar("T")

CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)
# Of float32, in which models compute.
_LARGEST = (2 - 2**-23) * 2.0**127


def _rising(value: Any) -> Any:
    if list(value) != sorted(value):
        raise ValueError("expected the smallest first")
    return value


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
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
Entries = Annotated[list[Any] | tuple[Any, ...], Field(min_length=1)]
Pair = Annotated[tuple[Count, Count], BeforeValidator(_pair)]
"""(rows, cols), or one number for both."""
Precision = Literal["auto", "float32", "bfloat16"]
"""Of the matrix products; `auto` is bfloat16 where a machine is faster with it."""
Rising = AfterValidator(_rising)
"""Of a tuple: no number is less than the one before it."""


Depends = Mapping[str, tuple[str, Collection[Any]]]
"""Option -> another one, and with which values of that it has an effect."""


@overload
def config_dataclass(cls: type[T]) -> type[T]: ...
@overload
def config_dataclass(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field, Field))
def config_dataclass(cls: type[T] | None = None, *, kw_only: bool = True) -> Any:
    """A frozen dataclass, of keywords unless said otherwise, whose values pydantic checks by their annotations.

    "1" is not taken for 1, nor 1 for true; a list is for a tuple and a whole number for a float. What is refused is an
    InputError here as in `build_config`.
    """
    if cls is None:
        return functools.partial(config_dataclass, kw_only=kw_only)
    made: Any = dataclass(frozen=True, kw_only=kw_only, config=CHECKED)(cls)
    checked, names = made.__init__, [one.name for one in dataclasses.fields(made)]

    @functools.wraps(checked)
    def init(self: Any, *given: Any, **values: Any) -> None:
        if not kw_only and len(given) <= len(names):
            given, values = (), {**dict(zip(names, given, strict=False)), **values}
        try:
            checked(self, *given, **{name: _tuples(value) for name, value in values.items()})
        except ValidationError as error:
            raise validation_error(error, "", made) from None

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
        if error.errors(include_url=False)[0]["type"] == "json_invalid":
            raise InputError(f"{where}: holds what is no text, number, true, false, or a list of them") from None
        raise validation_error(error, where, cls) from None


def dump_config(config: Any) -> dict[str, Any]:
    """A configuration as plain values, for YAML and JSON; `build_config` makes an equal one of them."""
    return TypeAdapter(type(config)).dump_python(config, mode="json")


def merge(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `base` and those that are given in their place, group by group."""
    merged = dict(base)
    for key, value in given.items():
        inner = merged.get(key)
        merged[key] = merge(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def check_value(name: str, value: Any, kind: Any, where: str = "") -> Any:
    """The value, where it is of a kind, as `Count`; `where` is what an error begins with.

    Raises:
        InputError: it is not; names it.
    """
    try:
        return TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise validation_error(error, where, None, name) from None


def whole(low: int, high: int | None = None) -> Any:
    """The kind of whole numbers from `low` to `high`."""
    return Annotated[int, Field(ge=low, le=high)]


def is_finite_number(value: object) -> bool:
    """A whole number beyond the floating point numbers is not one either."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def require_effect(
    config: Any, depends: Depends, others: Mapping[str, Any] | None = None, where: str = ""
) -> list[str]:
    """Refuse options that are neither null nor as usual where another one leaves them without effect; return the others
    of `depends`. `others`: values that go before those of the configuration; `where`: what names begin with."""
    effective, there = [], {**vars(config), **(others or {})}
    for name, (other, values) in depends.items():
        value = getattr(config, name)
        if there[other] in values:
            effective.append(name)
        elif value is not None and value != getattr(type(config), name):
            said = f"{where}{name} {value!r}: has no effect with {other} {there[other]}"
            expected = f"{other} {' or '.join(map(str, values))}"
            raise InputError(f"{said} (expected {expected})", field=f"{where}{name}", value=value)
    return effective


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


@contextlib.contextmanager
def errors_of_file(file: PurePath | None) -> Iterator[None]:
    """What is refused inside was asked for by this file: its name goes before the message."""
    try:
        yield
    except InputError as error:
        said = f"{file}: {error}" if file else str(error)
        raise InputError(said, field=error.field, value=error.value) from None
