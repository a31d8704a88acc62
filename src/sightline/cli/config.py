"""Configurations from YAML and `--set`: pydantic makes the dataclasses and checks them, here alone.

Configurations are frozen dataclasses that live beside what they configure; all that they know of pydantic is their
`__pydantic_config__` (`checks.STRICT`), without which a key that is not known would be dropped in silence.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sightline.cli.yaml_text import parse_yaml
from sightline.errors import InputError, did_you_mean, known_as, near

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
    adapter = TypeAdapter(cls)
    try:
        # As JSON: there pydantic's strict mode takes a list for a tuple and text for a path, and nothing looser.
        return adapter.validate_json(json.dumps(mapping), strict=True)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        # What is not known says most: it may be what is missing.
        fault = next((one for one in faults if one["type"] == _UNKNOWN), faults[0])
        raise InputError(f"{where}: {_say(fault, adapter.json_schema(), mapping)}") from None


_UNKNOWN = "unexpected_keyword_argument"


def _refuse_unplain(value: object, path: str, where: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            inside = f"{path}.{key}" if path else str(key)
            if not isinstance(key, str):
                raise InputError(f"{where}: key {inside} is not text; write it in quotes")
            _refuse_unplain(item, inside, where)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_unplain(item, f"{path}[{index}]", where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: {path} = {value}: expected a finite number")
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        raise InputError(f"{where}: {path} is a {type(value).__name__}; expected text, a number, true, false or a list")


def _say(fault: Any, schema: Any, value: Any) -> str:
    """One line of what pydantic found; `schema` is what it expected, as JSON Schema, and `value` what it was given."""
    defs = schema.get("$defs", {})
    # The schema and the value of the innermost key that the fault is in, and of what is inside it.
    path, entries = "", ""
    inner, inner_value = schema, value
    for step in fault["loc"]:
        group = _group(inner, defs)
        if isinstance(step, int):
            entries, inner_value = f"{entries}[{step}]", group and inner_value[step]
        elif group and step in group["properties"]:
            path, entries = f"{path}{entries}.{step}".lstrip("."), ""
            schema = inner = group["properties"][step]
            value = inner_value = inner_value.get(step)
        elif group and fault["type"] == _UNKNOWN:
            known = ", ".join(group["properties"])
            name = f"{path}{entries}.{step}".lstrip(".")
            return f"key {name} is not known{_nearest_key(step, group, defs)} (allowed: {known})"
    if fault["type"] == "missing" and not entries:
        return f"key {path} is missing; expected {_words(schema, defs)}"
    if fault["type"] == "value_error":
        text = str(fault["ctx"]["error"])
        return text if not path or text.startswith(f"{path}.") else f"{path}{entries}: {text}"
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    hint = did_you_mean(value, _choices(schema, defs)) if isinstance(value, str) else ""
    inside = f" ({fault['msg']})" if entries else ""
    return f"{path} = {shown}: expected {_words(schema, defs)}{hint}{inside}".removeprefix(" = ")


def _nearest_key(key: str, group: Any, defs: Any) -> str:
    """The nearest of a group's keys, or of the keys inside its groups: `lr` may mean `optimizer.lr`."""
    inside = {name: _group(one, defs) for name, one in group["properties"].items()}
    paths = {one: f"{name}.{one}" for name, under in inside.items() if under for one in under["properties"]}
    paths |= {name: name for name in inside}
    close = known_as(key, paths) or near(key, inside) or near(key, paths)
    return f"; did you mean {' or '.join(repr(paths[one]) for one in close)}?" if close else ""


def _variants(schema: Any, defs: Any) -> Iterator[Any]:
    """What a schema allows, one kind a time."""
    schema = defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _variants(one, defs)
    else:
        yield schema


def _group(schema: Any, defs: Any) -> Any:
    """The group of keys that a schema allows, perhaps as the entry of a list; None where it allows none."""
    for one in _variants(schema, defs):
        if "properties" in one:
            return one
        if isinstance(one.get("items"), dict):
            return _group(one["items"], defs)
    return None


def _choices(schema: Any, defs: Any) -> list[str]:
    """The words that a schema allows."""
    found = [one.get("enum", [one["const"]] if "const" in one else []) for one in _variants(schema, defs)]
    return [str(word) for words in found for word in words]


_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "object": "a group of keys",
}
_BOUNDS = {
    "exclusiveMinimum": "greater than",
    "minimum": "of at least",
    "exclusiveMaximum": "less than",
    "maximum": "of at most",
}


def _words(schema: Any, defs: Any) -> str:
    """What a schema allows, for an error: "a number greater than 0", "one of cls, mean, attention"."""
    return " or ".join(_kind(one, defs) for one in _variants(schema, defs))


def _kind(schema: Any, defs: Any) -> str:
    if choices := _choices(schema, defs):
        return f"one of {', '.join(choices)}"
    if "properties" in schema:
        return f"a group of keys ({', '.join(schema['properties'])})"
    if "prefixItems" in schema:
        each = [_words(one, defs) for one in schema["prefixItems"]]
        return f"a list of {len(each)}: {', '.join(each)}"
    if schema.get("type") == "array":
        least = f" with at least {schema['minItems']} entries" if "minItems" in schema else ""
        return f"a list, each {_words(schema['items'], defs)}{least}"
    bounds = [f"{words} {schema[key]:g}" for key, words in _BOUNDS.items() if key in schema]
    return f"{_WORDS.get(schema.get('type'), 'any value')} {' and '.join(bounds)}".strip()


def apply_settings(mapping: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """`mapping` with settings "key=value" put in; a key may be a path, "optimizer.lr", and a value is read as YAML.

    Raises:
        InputError: a setting has no "=", an empty key, a value that is not YAML, or a key that another one sets.
    """
    merged = copy.deepcopy(dict(mapping))
    given: list[str] = []
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        *groups, key = name.split(".")
        if not equals or not all((*groups, key)):
            raise InputError(f"--set {setting}: expected key=value, as in optimizer.lr=1e-3")
        for other in given:
            if other == name:
                raise InputError(f"--set {setting}: {name} is set twice")
            if f"{other}.".startswith(f"{name}.") or f"{name}.".startswith(f"{other}."):
                raise InputError(f"--set {setting}: {other} is set as well, and one contains the other")
        given.append(name)
        inside = merged
        for depth, group in enumerate(groups, start=1):
            inside = inside.setdefault(group, {})
            if not isinstance(inside, dict):
                raise InputError(
                    f"--set {setting}: {'.'.join(groups[:depth])} is {json.dumps(inside)}, not a group of keys"
                )
        inside[key] = parse_yaml(text, f"--set {setting}")
    return merged


@contextlib.contextmanager
def named_after(file: Path | None) -> Iterator[None]:
    """What is refused inside was asked for by this file: its name goes before the message."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file}: {error}" if file else str(error)) from None


def dump_config(instance: Any) -> dict[str, Any]:
    """A dataclass as plain values, for YAML and JSON; `check_config` makes an equal one of them."""
    return TypeAdapter(type(instance)).dump_python(instance, mode="json")
