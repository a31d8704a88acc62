"""YAML as its version 1.2 reads plain values: `1e-3` is a number, `no` is a word, `010` is ten, a date is text.

A key that stands twice, an alias or a tag of another language is refused: a configuration needs none of them.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from sightline.errors import InputError
from sightline.reading import CONFIGURATION, read_text

_PLAIN = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        InputError: the file is missing (the message names the nearest one), is no UTF-8 text or no YAML, is not a
            mapping, or has a key twice; line numbers count from 1.
    """
    path = Path(path)
    value = parse_yaml(read_text(path, CONFIGURATION, "a configuration in YAML"), str(path))
    if value is None:
        raise InputError(f"{path}: is empty; expected lines `key: value`")
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds a {type(value).__name__}; expected lines `key: value`")
    return value


def parse_yaml(text: str, where: str) -> Any:
    """The value that a YAML text holds.

    Raises:
        InputError: it is not YAML, or holds what a configuration does not need; begins with `where`.
    """
    import yaml

    try:
        return yaml.load(text, _loader())  # The loader is a SafeLoader.
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None and "\n" in text.strip("\n") else ""
        raise InputError(f"{where}{line}: is not valid YAML ({error.problem or error.context})") from None
    except yaml.YAMLError as error:
        raise InputError(f"{where}: is not valid YAML ({str(error).splitlines()[0]})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not valid YAML ({str(error)[:80]})") from None


@functools.cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML's safe loader with YAML 1.2's plain values."""

        yaml_implicit_resolvers = {}  # noqa: RUF012  # PyYAML's own way

        def compose_node(self, parent: Any, index: Any) -> Any:
            # An alias makes a few lines stand for billions of values, or for themselves.
            if self.check_event(yaml.AliasEvent):
                raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=self.peek_event().start_mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.MarkedYAMLError(problem="a key must be one word", problem_mark=key.start_mark)
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    def whole_number(loader: Any, node: Any) -> int:
        text = node.value
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)

    for kind, pattern, first in _PLAIN:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z"), first)
    Loader.add_constructor("tag:yaml.org,2002:int", whole_number)
    return Loader


def dump_yaml(values: Any) -> str:
    """Plain values as YAML text that `read_yaml` reads back; keys keep their order."""
    import json

    import yaml

    # Through JSON, so that tuples become lists.
    return yaml.safe_dump(json.loads(json.dumps(values)), sort_keys=False, allow_unicode=True)
