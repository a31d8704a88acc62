"""A run that goes on sees the data that it saw before, or says what changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sightline.data.fingerprint import Fingerprint, counted, describe_differences
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.io.run_files import LISTING
from sightline.training.config import BUDGETS, TrainConfig
from sightline.training.log import unheard
from sightline.training.same_run import training_record
from sightline.training.validation import VALIDATION_SPLIT


def data_record(found: Fingerprint, minival: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What a checkpoint keeps of its data: for its record, and as files."""
    listing = found.pack() if found.files else b""
    record = {"digest": found.digest, "images": len(found.files), "minival": minival}
    return record, ({LISTING: listing} if listing else {})


def minival_digest(source: Source, config: TrainConfig) -> str:
    """Of the split that a run is validated on; "" where it is on none."""
    validates = config.validation is not None and VALIDATION_SPLIT in source.splits
    return source.fingerprint(VALIDATION_SPLIT).digest if validates else ""


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
        path: the checkpoint.
        accept_changed: go on with the data as it is now.
        warn: called with a line where a change was accepted, or where times differ and no more than samples can be
            compared.
        progress: of reading whole files, as `Source.changed_contents`.

    Returns:
        The configuration; where a change was accepted, with the length that the run had.

    Raises:
        InputError: the data differs; names what does, the first files of each kind.
    """
    training, listing = training_record(path), path / LISTING
    kept = training["data"]
    now = source.fingerprint()
    before = Fingerprint.unpack(listing.read_bytes(), str(listing)) if listing.exists() else None
    said, way_on = ["another data set"], "--accept-changed-data goes on all the same"
    if kept["digest"] == now.digest:
        replaced, unsure = ([], []) if before is None else source.changed_contents(before, progress)
        if unsure:
            warn(
                f"{config.data}: {counted('with other times', unsure)} than when {path} was written: same sizes and "
                "samples of 12 KiB, the rest cannot be compared (sightline data check, before a training, keeps whole "
                "checksums)"
            )
        digests = kept.get("minival"), minival_digest(source, config)
        other = all(digests) and digests[0] != digests[1]
        if not replaced and not other:
            return config
        said = [counted("replaced", replaced)] if replaced else []
        said += (
            [f"{VALIDATION_SPLIT} is another one, by which its curve and its best model would be of two"]
            if other
            else []
        )
    elif before is not None:
        said = describe_differences(before, now)
        if len(before.classes) != len(now.classes):
            accept_changed, way_on = False, "--overwrite starts anew"
            said.append(f"{len(before.classes)} classes then, {len(now.classes)} now, which no run can go on with")
    changed = f"{config.data} changed since {path} was written: {'; '.join(said)}"
    if not accept_changed:
        raise InputError(f"--resume: {changed} (expected the same data; {way_on})")
    warn(changed)
    saved = training["config"]
    return dataclasses.replace(config, **{name: saved.get(name) for name in BUDGETS})
