"""A run that goes on has the configuration that it began with, but for what changes no weight."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sightline.errors import InputError
from sightline.io.atomic import write_out
from sightline.io.config import dump_config
from sightline.io.read import read_json
from sightline.io.run_files import CONFIG, LOG, MODEL, TRAINING, VALIDATION
from sightline.io.yaml import dump_yaml, read_yaml
from sightline.training.config import TrainConfig

# What may change between a run and its continuation without changing the weights.
_FREE_TO_CHANGE = (
    "accumulate", "recompute", "compile", "sharing", "validation", "workers", "checkpoint_every", "keep_last",
    "skip_unreadable",
)  # fmt: skip
# What `TrainState` keeps in the record of a checkpoint, and goes on with.
_NEEDED = {"config", "course", "data", "ranks", "seconds", "step", "threads", "validated"}
# Of these groups the order counts too.
_ORDERED = ("augment",)


def training_record(path: Path) -> dict[str, Any]:
    """What a verified checkpoint says of the training that goes on from it.

    Raises:
        InputError: it is of a model alone, or of another version; says what is missing.
    """
    training = read_json(path / MODEL, "the record of a model")["training"]
    lacking = [name for name in (LOG, VALIDATION, TRAINING) if not (path / name).exists()]
    if lacking := sorted(_NEEDED - training.keys()) + lacking:
        raise InputError(
            f"--resume: {path}: is a model without the state of its training, or of another version "
            f"({', '.join(lacking)})"
        )
    return training


def check_same_run(saved: Mapping[str, Any], config: TrainConfig, path: Path) -> None:
    """Refuse to continue what another configuration began; names the first key that differs.

    Args:
        saved: the resolved configuration of what is there; config: the resolved one that was asked for.
    """
    for key, there, value in _differences(saved, _plain(config)):
        if key.partition(".")[0] not in _FREE_TO_CHANGE:
            raise InputError(
                f"--resume: {path} was trained with {key} {there!r}, not {value!r} "
                f"(expected the same configuration; train --data {config.data} --init-from {path} --out OTHER goes on "
                "from its weights, --overwrite deletes it and starts anew)"
            )


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


def save_config(resolved: TrainConfig, folder: Path) -> None:
    """Write `config.yaml` into the folder of a run, or compare with the one that is there.

    Raises:
        InputError: the run in the folder was begun with another configuration; names the key.
    """
    path = folder / CONFIG
    if path.exists():
        check_same_run(read_yaml(path), resolved, folder)
    else:
        write_out(path, dump_yaml(dump_config(resolved)))
