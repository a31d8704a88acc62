"""The checkpoints in the folder of a run: which there are, which one goes on, which stay, and what was measured of it.

The last one is `checkpoint`; the one before it is `checkpoint.previous` until the run is complete, and where more are
kept each older one is named after its step. The best by validation is `checkpoint.best`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from sightline.errors import InputError
from sightline.io.atomic import previous_path, storage_errors
from sightline.io.checkpoint import checkpoint_exists, refuse_foreign, verify_checkpoint
from sightline.io.read import read_json
from sightline.io.run_files import (
    BEST,
    CHECKPOINT,
    CHECKSUMS,
    LOG,
    MODEL,
    PICTURES,
    PREDICTIONS,
    RESULTS,
    checkpoints_of,
    is_checkpoint_file,
    older_checkpoint_name,
    step_of,
)
from sightline.training.log import unheard


def has_checkpoint(out: Path) -> bool:
    """Whether there is a checkpoint to go on from, or one that was.

    Raises:
        InputError: a link stands in its place, through which the checkpoint of another run would be replaced.
    """
    _refuse_link(out / CHECKPOINT)
    return any(checkpoint_exists(place) for place in _to_go_on_from(out))


def _to_go_on_from(out: Path) -> list[Path]:
    """Where a checkpoint to go on from may stand, the newest first."""
    return [out / CHECKPOINT, previous_path(out / CHECKPOINT), *_older(out)]


def _older(out: Path) -> list[Path]:
    """The older checkpoints that a run keeps under the names of their steps, the newest first; nothing else."""
    return [place for place in checkpoints_of(out) if step_of(place.name) is not None and _is_ours(place)]


def _is_ours(place: Path) -> bool:
    """Whether a checkpoint stands at a place, and nothing else with it."""
    if place.is_symlink() or not (place / CHECKSUMS).is_file():
        return False
    return all(is_checkpoint_file(entry.name) and entry.is_file() for entry in place.iterdir())


def _refuse_link(place: Path) -> None:
    if place.is_symlink():
        raise InputError(
            f"{place}: is a link to {os.path.realpath(place)}, which is not this run's to replace; expected a folder "
            "(copy what it leads to)"
        )


def last_whole(out: Path, warn: Callable[[str], None] = unheard) -> Path | None:
    """The newest whole checkpoint of a run that is to go on; None of a new run.

    Args:
        warn: called with a line where that is not the last one, which says what is wrong with those after it; also
            where there is something else in the place of the one before the last.

    Raises:
        InputError: all are damaged, or gone while what a run writes after its first checkpoint is there; or as
            `has_checkpoint`.
    """
    if not has_checkpoint(out):
        for kept in (out / BEST / CHECKSUMS, out / LOG):
            if kept.is_file() and kept.stat().st_size:
                raise InputError(
                    f"--resume: {out} holds {kept.relative_to(out).parts[0]} of a run whose {CHECKPOINT} is gone (put "
                    "it back; --overwrite begins anew)"
                )
        return None
    last, previous, *older = _to_go_on_from(out)
    if previous.is_symlink() or previous.is_file():
        warn(f"{previous}: is a {'link' if previous.is_symlink() else 'file'}; no checkpoint is kept there as a spare")
    faults = []
    for place in (last, *([previous] if checkpoint_exists(previous) else []), *older):
        try:
            verify_checkpoint(place)
        except InputError as error:
            faults.append(str(error))
            continue
        if faults:
            warn(f"{'; and '.join(faults)}; going on from {place}")
        return place
    raise InputError("; and ".join(faults))


def keep_older(out: Path, count: int, step: int | None = None) -> None:
    """See that so many checkpoints before the last one stay, named after their steps; what is no checkpoint stays too.

    Args:
        step: of the last one, which stands by now; before that nothing is deleted.

    Raises:
        StorageError: one cannot be moved or deleted.
    """
    with storage_errors(f"{out}: its older checkpoints cannot be moved or deleted"):
        if count:
            _name_previous(out)
        if step is not None:
            older = _older(out)
            # Of a run that went on from an earlier one, since these are damaged.
            beyond = [place for place in older if (step_of(place.name) or 0) >= step]
            for place in (*beyond, *older[len(beyond) + count :]):
                _delete(place)


def _name_previous(out: Path) -> None:
    """Give the one before the last the name of its step, unless something else has it."""
    previous = previous_path(out / CHECKPOINT)
    if not _is_ours(previous):
        return
    try:
        step = read_json(previous / MODEL, "the record of a model")["training"]["step"]
        place = out / older_checkpoint_name(step)
    except (InputError, KeyError, TypeError, ValueError):
        return
    if _is_ours(place):
        _delete(place)
    if not os.path.lexists(place):
        os.replace(previous, place)


def _delete(place: Path) -> None:
    """Delete a folder: a kill leaves it whole, or under a name that the next save deletes."""
    going = place.with_name(f".{CHECKPOINT}.writing-{os.getpid()}-{secrets.token_hex(4)}")
    os.replace(place, going)
    shutil.rmtree(going, ignore_errors=True)


def drop_previous(out: Path) -> None:
    """Delete the spare of a run that is complete, unless it is all that can be read, or no checkpoint."""
    previous = previous_path(out / CHECKPOINT)
    if previous.is_symlink() or not (previous / CHECKSUMS).exists():
        return
    # One that cannot be deleted is no reason to fail.
    with contextlib.suppress(InputError, OSError):
        verify_checkpoint(out / CHECKPOINT)
        _delete(previous)


def measured_files(out: Path) -> list[Path]:
    """What was measured of a run, as far as it is there."""
    files = [out / name for name in (RESULTS, PREDICTIONS) if (out / name).exists()]
    return [*files, *sorted((out / PICTURES).glob("*.png"))]


def drop_measured(out: Path, foreign: Collection[Path]) -> None:
    """Delete what was measured of weights that are about to be replaced.

    Args:
        foreign: files of these names that no run wrote, which stay.

    Raises:
        StorageError: one cannot be deleted.
    """
    for file in measured_files(out):
        if file not in foreign:
            with storage_errors(f"{file}: cannot be deleted"):
                file.unlink(missing_ok=True)


def best_checkpoint(out: Path, warn: Callable[[str], None]) -> Path | None:
    """Where a run keeps its best model; None where something else stands there, which stays and ends no run.

    Args:
        warn: called with a line then.
    """
    place = out / BEST
    try:
        _refuse_link(place)
        refuse_foreign(place)
    except InputError as error:
        warn(f"{error}; the best model by validation is not kept")
        return None
    return place
