"""`--set key=value`."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from sightline.errors import InputError
from sightline.io.config import merge
from sightline.io.yaml import parse_yaml


def apply_settings(mapping: Mapping[str, Any], settings: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """`mapping` with settings "key=value" put in; a key may be a path, "optimizer.lr", and a value is read as YAML.
    From Python the settings may be a mapping.

    Raises:
        InputError: a setting has no "=", an empty key, a value that is not YAML, or a key that another one sets.
    """
    merged = copy.deepcopy(dict(mapping))
    if isinstance(settings, Mapping):
        return merge(merged, settings)
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
