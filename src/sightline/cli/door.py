"""The door for configurations: what comes from YAML or `--set` is checked here once, and is a dataclass from then on.

Configurations are frozen dataclasses that live beside what they configure and know nothing of this module.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sightline.errors import InputError, nearest

T = TypeVar("T")


def check_config(cls: type[T], mapping: Mapping[str, Any], where: str = "configuration") -> T:
    """The dataclass `cls` from `mapping`, strictly: no text is taken for a number, and nothing unknown is dropped.

    A whole number does where a fraction is declared. Bounds are those of `Annotated[float, Gt(0)]` (annotated_types)
    and of the class's own `__post_init__`, which raises ValueError.

    Args:
        cls: a dataclass, whose fields may be dataclasses, optional ones and tuples or lists of them.
        mapping: plain values, as YAML and JSON have them.
        where: what an error begins with, the file's name for one.

    Raises:
        InputError: a key is unknown or missing, or a value is of the wrong type, out of range, NaN or infinite.
    """
    _refuse_unplain(mapping, "", where)
    return _build(cls, mapping, "", where)


def _refuse_unplain(value: object, path: str, where: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where}: key {_join(path, str(key))} is not text; write it in quotes")
            _refuse_unplain(item, _join(path, key), where)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_unplain(item, f"{path}[{index}]", where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: {path} = {value}: expected a finite number")
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise InputError(f"{where}: {path} is a {type(value).__name__}; expected text, a number, true, false or a list")


def _build(cls: type[T], mapping: object, path: str, where: str) -> T:
    if not isinstance(mapping, Mapping):
        raise InputError(f"{where}: {path} = {_show(mapping)}: expected a group of keys ({', '.join(_fields(cls))})")
    fields = _fields(cls)
    for key in mapping:
        if key not in fields:
            raise InputError(
                f"{where}: key {_join(path, key)} is not known{_nearest_key(cls, key)} (allowed: {', '.join(fields)})"
            )
    hints = _hints(cls)
    values = {}
    for name, field in fields.items():
        if name in mapping:
            values[name] = _convert(hints[name], mapping[name], _join(path, name), where)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(f"{where}: key {_join(path, name)} is missing; expected {describe(hints[name])}")
    try:
        return cls(**values)
    except ValueError as error:
        named = not path or str(error).startswith(f"{path}.")
        raise InputError(f"{where}: {'' if named else path + ': '}{error}") from error


def _nearest_key(cls: type, key: str) -> str:
    """The nearest of a dataclass's keys, or of the keys inside its groups: `lr` may mean `optimizer.lr`."""
    if hint := nearest(key, _fields(cls)):
        return hint
    for group, hint in _hints(cls).items():
        if dataclasses.is_dataclass(_bare(hint)):
            for name in _fields(typing.cast(type, _bare(hint))):
                if nearest(key, [name]):
                    return f"; did you mean '{group}.{name}'?"
    return ""


def _convert(hint: Any, value: object, path: str, where: str) -> Any:
    inner = _bare(hint)
    if dataclasses.is_dataclass(inner):
        return _build(typing.cast(type, inner), value, path, where)
    choices = [_bare(choice) for choice in typing.get_args(inner)]
    if _is_union(inner) and any(dataclasses.is_dataclass(choice) for choice in choices):
        if value is None and type(None) in choices:
            return None
        return _convert(next(choice for choice in choices if dataclasses.is_dataclass(choice)), value, path, where)
    many = typing.get_origin(inner)
    if many in (list, tuple) and choices and dataclasses.is_dataclass(choices[0]) and isinstance(value, (list, tuple)):
        return many(_convert(choices[0], item, f"{path}[{index}]", where) for index, item in enumerate(value))
    return _check_value(hint, value, path, where)


def _check_value(hint: Any, value: object, path: str, where: str) -> Any:
    from pydantic import ValidationError

    try:
        # As JSON: there pydantic's strict mode takes a list for a tuple and text for a path, and nothing looser.
        return _adapter(hint).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        inside = fault["msg"] if any(isinstance(step, int) for step in fault["loc"]) else ""
        hint_at = nearest(value, _literals(hint)) if isinstance(value, str) else ""
        raise InputError(
            f"{where}: {path} = {_show(value)}: expected {describe(hint)}{hint_at}{f' ({inside})' if inside else ''}"
        ) from None


@functools.lru_cache(maxsize=256)
def _adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(hint)


def _fields(cls: type) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls) if field.init}  # pyright: ignore[reportArgumentType]


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def _bare(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _literals(hint: Any) -> list[str]:
    hint = _bare(hint)
    if typing.get_origin(hint) is typing.Literal:
        return [str(value) for value in typing.get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [str(member.value) for member in hint]
    return [name for choice in typing.get_args(hint) for name in _literals(choice)] if _is_union(hint) else []


_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    Path: "a path",
    Any: "any value",
}
_BOUNDS = {"gt": "greater than", "ge": "of at least", "lt": "less than", "le": "of at most"}
_LENGTHS = {"min_length": "at least", "max_length": "at most"}


def describe(hint: Any) -> str:
    """A type and its bounds in words, for an error: "a number greater than 0", "one of cls, mean, attention"."""
    inner = _bare(hint)
    if inner is not hint:
        return _describe_bounded(hint)
    if names := _literals(hint) if not _is_union(hint) else []:
        return f"one of {', '.join(names)}"
    arguments = typing.get_args(hint)
    if _is_union(hint):
        return " or ".join(describe(choice) for choice in arguments)
    origin = typing.get_origin(hint)
    if origin in (list, tuple) and arguments:
        if origin is tuple and arguments[-1] is not Ellipsis:
            return f"a list of {len(arguments)}: {', '.join(describe(item) for item in arguments)}"
        return f"a list, each {describe(arguments[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return "a group of keys"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _describe_bounded(hint: Any) -> str:
    inner, *constraints = typing.get_args(hint)
    parts = []
    for constraint in constraints:
        for name, words in _BOUNDS.items():
            if getattr(constraint, name, None) is not None:
                parts.append(f"{words} {getattr(constraint, name)}")
        for name, words in _LENGTHS.items():
            # A minimum of 0 is annotated_types' way to say that there is none.
            if getattr(constraint, name, None):
                parts.append(f"with {words} {getattr(constraint, name)} entries")
    return " ".join([describe(inner), " and ".join(parts)]).strip()


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def apply_settings(mapping: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """`mapping` with settings "key=value" put in; a key may be a path, "optimizer.lr", and a value is read as YAML.

    Raises:
        InputError: a setting has no "=", an empty key, a value that is not YAML, or a key that another one sets.
    """
    from sightline.cli.yaml_text import parse_yaml

    merged = copy.deepcopy(dict(mapping))
    given: list[list[str]] = []
    for setting in settings:
        name, equals, text = setting.partition("=")
        keys = name.strip().split(".")
        if not equals or not all(keys):
            raise InputError(f"--set {setting}: expected key=value, as in optimizer.lr=1e-3")
        for other in given:
            if other == keys:
                raise InputError(f"--set {setting}: {name.strip()} is set twice")
            if other[: len(keys)] == keys or keys[: len(other)] == other:
                raise InputError(f"--set {setting}: {'.'.join(other)} is set as well, and one contains the other")
        given.append(keys)
        inside = merged
        for depth, key in enumerate(keys[:-1], start=1):
            inside = inside.setdefault(key, {})
            if not isinstance(inside, dict):
                raise InputError(f"--set {setting}: {'.'.join(keys[:depth])} is {_show(inside)}, not a group of keys")
        inside[keys[-1]] = parse_yaml(text, f"--set {setting}")
    return merged


def dump_config(instance: Any) -> dict[str, Any]:
    """A dataclass as plain values, for YAML and JSON; `check_config` makes an equal one of them."""
    return {name: _plain(getattr(instance, name)) for name in _fields(type(instance))}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return dump_config(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
