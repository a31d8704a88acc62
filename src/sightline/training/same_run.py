"""A run that goes on has the configuration that it began with, but for what changes no weight."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sightline.errors import InputError
from sightline.training.config import TrainConfig, renamed

# What may change between a run and its continuation without changing the weights.
_FREE_TO_CHANGE = (
    "accumulate", "recompute", "compile", "sharing", "validation", "workers", "checkpoint_every", "keep_last",
    "skip_unreadable",
)  # fmt: skip
# Of these groups the order counts too.
_ORDERED = ("augment",)


def check_same_run(saved: Mapping[str, Any], config: TrainConfig, path: Path) -> None:
    """Refuse to continue what another configuration began; names the first key that differs.

    A field that an older version did not know yet has the value that it stood for then: the metadata `before` of the
    field where its default says otherwise, else its default.

    Args:
        saved: the resolved configuration of what is there; config: the resolved one that was asked for.
    """
    for key, there, value in _differences(_completed(renamed(saved), config), _plain(config)):
        if key.partition(".")[0] not in _FREE_TO_CHANGE:
            raise InputError(
                f"--resume: {path} was trained with {key} {there!r}, not {value!r} "
                f"(expected the same configuration; train --data {config.data} --init-from {path} --out OTHER goes on "
                "from its weights, --overwrite deletes it and starts anew)"
            )


def _completed(saved: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """`saved` with the fields of `config` that the version which wrote it did not have."""
    completed = dict(saved)
    for one in dataclasses.fields(config):
        inner, there = getattr(config, one.name), saved.get(one.name)
        if dataclasses.is_dataclass(inner) and isinstance(there, Mapping):
            completed[one.name] = _completed(there, inner)
        elif one.name not in saved:
            default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
            if (stood_for := one.metadata.get("before", default)) is not dataclasses.MISSING:
                completed[one.name] = _plain(stood_for)
    return completed


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value))  # pyright: ignore[reportArgumentType]


def _differences(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*wanted, *saved)):
        there, value = saved.get(key), wanted.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            yield from ((f"{key}.{inner}", *both) for inner, *both in _differences(there, value))
            if key in _ORDERED and list(there) != list(value):
                yield key, list(there), list(value)
        elif there != value:
            yield key, there, value
