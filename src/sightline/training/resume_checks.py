"""What a run that goes on is held to: the configuration that it began with, but for what changes no weight, and the
data that it saw before."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sightline.data.fingerprint import Fingerprint, counted, describe_differences
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.io.atomic import write_out
from sightline.io.config import dump_config
from sightline.io.read import read_json
from sightline.io.run_files import CONFIG, LISTING, LOG, MODEL, TRAINING, VALIDATION
from sightline.io.yaml import dump_yaml, read_yaml
from sightline.training.config import BUDGETS, TrainConfig
from sightline.training.log import unheard

# What may change between a run and its continuation without changing the weights.
_FREE_TO_CHANGE = (
    "accumulate", "recompute", "compile", "sharing", "validation", "workers", "checkpoint_every", "keep_last",
    "skip_unreadable",
)  # fmt: skip
# What a continuation reads in the record of a checkpoint, and the files that it needs.
_NEEDED = {"config", "course", "data", "ranks", "seconds", "step", "threads", "validated"}


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


def check_same_config(saved: Mapping[str, Any], config: TrainConfig, path: Path) -> None:
    """Refuse to continue what another configuration began; names the first key that differs.

    Args:
        saved: the resolved configuration of what is in `path`; config: the resolved one that was asked for.
    """
    for key, there, value in _differences(saved, json.loads(json.dumps(dataclasses.asdict(config)))):
        if key.partition(".")[0] not in _FREE_TO_CHANGE:
            raise _other_config(path, config, key, there, value)


def check_same_epochs(path: Path, epochs: float, config: TrainConfig) -> None:
    """Refuse to go on from a checkpoint for another number of epochs; `config` has the images that they are."""
    images, before = config.images, training_record(path)["config"]["images"]
    if images and before and images != before:
        # The folder of the run, whose checkpoints/STEP it is. Rounded epochs may be equal; then images are named.
        there = round(before * epochs / images, 3)
        key, there, value = ("epochs", there, epochs) if there != epochs else ("images", before, images)
        raise _other_config(path.parent.parent, config, key, there, value)


def _other_config(path: Path, config: TrainConfig, key: str, there: object, value: object) -> InputError:
    """The refusal of a run in `path` that was trained with another value of a key."""
    return InputError(
        f"--resume: {path} was trained with {key} {there!r}, not {value!r} "
        f"(expected the same configuration; train --data {config.data} --init-from {path} --out OTHER goes on "
        "from its weights, --overwrite deletes it and starts anew)",
        field=key,
        value=value,
    )


def _differences(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*wanted, *saved)):
        there, value = saved.get(key), wanted.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            yield from ((f"{key}.{inner}", *both) for inner, *both in _differences(there, value))
            # Augmentations are done in their order.
            if key == "augment" and list(there) != list(value):
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
        check_same_config(read_yaml(path), resolved, folder)
    else:
        write_out(path, dump_yaml(dump_config(resolved)))


def data_record(source: Source, config: TrainConfig) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What a checkpoint keeps of its data: for its record, and as files."""
    found, minival = source.fingerprint(), _minival_digest(source, config)
    record = {"digest": found.digest, "images": len(found.files), "minival": minival}
    return record, {LISTING: found.pack()} if found.files else {}


def _minival_digest(source: Source, config: TrainConfig) -> str:
    """Of the split that a run is validated on; "" where it is on none."""
    split = source.validation_split
    return source.fingerprint(split).digest if config.validation is not None and split else ""


def check_same_data(
    path: Path,
    source: Source,
    config: TrainConfig,
    *,
    accept_changed: bool = False,
    warn: Callable[[str], None] = unheard,
    progress: Callable[[int, int], None] | None = None,
) -> TrainConfig:
    """Refuse to go on from a checkpoint with other data than it was trained on, unless that is accepted.

    Files are told by their names, sizes and a sample of their content; where times differ, by the whole of it if that
    was known when the run was saved (`data check` reads it): a copy of the folder is the same data.

    Args:
        path: the checkpoint; accept_changed: go on with the data as it is now.
        warn: called where a change was accepted, or where times differ and samples alone can be compared.
        progress: of reading whole files, as `Source.changed_contents`.

    Returns:
        The configuration; where a change was accepted, with the length that the run had.

    Raises:
        InputError: the data differs; names what does, the first files of each kind.
    """
    training, listing, now = training_record(path), path / LISTING, source.fingerprint()
    before = Fingerprint.unpack(listing.read_bytes(), str(listing)) if listing.exists() else None
    said, way_on = ["another data set"], "--accept-changed-data goes on all the same"
    if training["data"]["digest"] == now.digest:
        replaced, unsure = ([], []) if before is None else source.changed_contents(before, progress)
        if unsure:
            warn(
                f"{config.data}: {counted('with other times', unsure)} than when {path} was written: same sizes and "
                "samples of 12 KiB, the rest cannot be compared (sightline data check, before a training, keeps whole "
                "checksums)"
            )
        minivals = training["data"].get("minival"), _minival_digest(source, config)
        said = [counted("replaced", replaced)] if replaced else []
        if all(minivals) and minivals[0] != minivals[1]:
            said.append(
                f"{source.validation_split} is another one, by which its curve and its best model would be of two"
            )
        if not said:
            return config
    elif before is not None:
        said = describe_differences(before, now)
        if len(before.classes) != len(now.classes):
            accept_changed, way_on = False, "--overwrite starts anew"
            said.append(f"{len(before.classes)} classes then, {len(now.classes)} now, which no run can go on with")
    changed = f"{config.data} changed since {path} was written: {'; '.join(said)}"
    if not accept_changed:
        raise InputError(f"--resume: {changed} (expected the same data; {way_on})")
    warn(changed)
    return dataclasses.replace(config, **{name: training["config"].get(name) for name in BUDGETS})
