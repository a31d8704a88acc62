"""YAML as its version 1.2 reads plain values: `1e-3` is a number, `no` is a word, `010` is ten, a date is text.

ruamel.yaml parses; what a word stands for is the core schema's rule, said here. A key that stands twice, an alias or a
tag is refused: a configuration needs none of them.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML, YAMLError, events
from ruamel.yaml.error import MarkedYAMLError

from sightline.errors import InputError
from sightline.io.read import CONFIGURATION, read_text

_WORDS = {"": None, "~": None} | {
    form: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for form in (word, word.capitalize(), word.upper())
}
_WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]{1,999}")
_FRACTION = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        InputError: the file is missing (the message names the nearest one), is no UTF-8 text or no YAML, is not a
            mapping, or has a key twice; line numbers count from 1.
    """
    path = Path(path)
    value = parse_yaml(read_text(path, CONFIGURATION, "a configuration in YAML"), str(path))
    if not isinstance(value, dict):
        held = "is empty" if value is None else f"holds a {type(value).__name__}"
        raise InputError(f"{path}: {held}; expected lines `key: value`")
    return value


def parse_yaml(text: str, where: str) -> Any:
    """The value that a YAML text holds.

    Raises:
        InputError: it is not YAML, or holds what a configuration does not need; begins with `where`.
    """
    try:
        return _document(YAML(typ="safe", pure=True).parse(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None and "\n" in text.strip("\n") else ""
        raise InputError(f"{where}{line}: is not valid YAML ({error.problem or error.context})") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not valid YAML ({str(error).splitlines()[0][:80]})") from None


def _document(rest: Iterator[Any]) -> Any:
    """The value of the one document."""
    found = None
    for number, _ in enumerate(event for event in rest if isinstance(event, events.DocumentStartEvent)):
        event = next(rest)
        found = _refuse("a second document begins", event) if number else _value(event, rest)
    return found


def _value(event: Any, rest: Iterator[Any]) -> Any:
    """What begins with an event; the rest of it is taken."""
    if isinstance(event, events.AliasEvent):
        # It makes a few lines stand for billions of values, or for themselves.
        _refuse("aliases are not allowed", event)
    if event.tag is not None:
        _refuse(f"tag {event.tag} is not allowed", event)
    if isinstance(event, events.ScalarEvent):
        return _plain(event.value) if event.implicit[0] else event.value
    if isinstance(event, events.SequenceStartEvent):
        items = []
        while not isinstance(event := next(rest), events.SequenceEndEvent):
            items.append(_value(event, rest))
        return items
    found = {}
    while not isinstance(event := next(rest), events.MappingEndEvent):
        if not isinstance(event, events.ScalarEvent):
            _refuse("a key must be one word", event)
        key = _value(event, rest)
        if key in found:
            _refuse(f"key {key!r} stands twice", event)
        found[key] = _value(next(rest), rest)
    return found


def _plain(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    if _WHOLE.fullmatch(word):
        return int(word, 0) if word[:2] in ("0o", "0x") else int(word)
    # Python has no point before `inf` and `nan`.
    return float(re.sub(r"\.(?=[a-zA-Z])", "", word)) if _FRACTION.fullmatch(word) else word


def _refuse(problem: str, event: Any) -> NoReturn:
    raise MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def dump_yaml(values: Any) -> str:
    """Plain values as YAML text that `read_yaml` reads back; keys keep their order."""
    yaml, text = YAML(typ="safe", pure=True), io.StringIO()
    # Else line ends that no keyboard has would be written as they are.
    yaml.allow_unicode = json.dumps(values, ensure_ascii=False).isprintable()
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False  # pyright: ignore[reportAttributeAccessIssue]
    yaml.dump(values, text)
    return text.getvalue()
