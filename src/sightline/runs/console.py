"""What is said on stderr, and the command line that does the same again."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sightline import plugins

# That change no number, or name the place.
_LEFT_OUT = ("out", "overwrite", "workers")


def warn(line: str) -> None:
    """On stderr what may be other than is thought, and ends nothing."""
    print(f"sightline: warning: {line}", file=sys.stderr)


def command_line(*words: object, name: str = "sightline") -> str:
    """A command of Sightline with its words quoted, and the plug-ins of this one; None among them is left out."""
    found = [word for folder in plugins.given for word in ("--plugins", folder)]
    return shlex.join([name, *(str(word) for word in words if word is not None), *found])


def option_words(asked: Any) -> list[object]:
    """The words of a command line for what is not left as it is in a class of options, but for files and workers."""
    words: list[object] = []
    for one in fields(asked):
        value = getattr(asked, one.name)
        if value == one.default or one.name in _LEFT_OUT:
            continue
        option = f"--{one.name.replace('_', '-')}"
        if isinstance(value, Mapping):
            words += [word for key, inside in value.items() for word in (f"{option}.{key}", json.dumps(inside))]
        elif value is True:
            words.append(option)
        else:
            words += [option, ",".join(map(str, value)) if isinstance(value, tuple) else value]
    return words
