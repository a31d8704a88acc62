"""Where a command writes: nothing that exists is touched unless the user says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from sightline.errors import InputError, StorageError

# What a folder of ours may hold at its top; anything else in it is the user's.
_OURS = {"checkpoint", "checkpoint.previous", "log.jsonl", "config.yaml", "results.jsonl", "report.html"}


def claim_folder(out: Path, *, resume: bool, overwrite: bool, inside: Iterable[str] = ()) -> None:
    """Make the folder of a run, or refuse the one that is there.

    Args:
        resume: continue in it; overwrite: delete it first. Not both.
        inside: names of folders of runs that it may hold.

    Raises:
        InputError: it exists and neither was given, or holds files that no run wrote.
        StorageError: it cannot be made or deleted.
    """
    if resume and overwrite:
        raise InputError("--resume and --overwrite: expected one of them, not both")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is a file, expected a folder")
    if out.is_dir() and any(out.iterdir()) and not resume:
        if not overwrite:
            raise InputError(f"--out {out}: exists already; --resume continues it, --overwrite replaces it")
        ours = _OURS | set(inside)
        foreign = [entry.name for entry in out.iterdir() if entry.name not in ours and not entry.name.startswith(".")]
        if foreign:
            raise InputError(f"--overwrite: {out} holds {foreign[0]!r}, which no run wrote; it is not deleted")
        try:
            shutil.rmtree(out)
        except OSError as error:
            raise StorageError(f"{out}: cannot be deleted ({error.strerror or error})") from error
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{out}: cannot be made ({error.strerror or error})") from error
    if not os.access(out, os.W_OK):
        raise StorageError(f"{out}: cannot be written (permission denied)")


def claim_file(out: Path, *, overwrite: bool) -> None:
    """Refuse a file that exists, unless it is to be replaced, and a folder that is not there."""
    if out.is_dir():
        raise InputError(f"--out {out}: is a folder, expected a file")
    if out.exists() and not overwrite:
        raise InputError(f"--out {out}: exists already; --overwrite replaces it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{out.parent}: cannot be made ({error.strerror or error})") from error


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        StorageError: it cannot be written; what was there before is untouched.
    """
    temporary = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
