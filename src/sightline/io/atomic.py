"""A file or a folder written under another name and renamed when complete."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from sightline.distributed.processes import is_alive
from sightline.errors import StorageError


@contextlib.contextmanager
def storage_errors(said: str) -> Iterator[None]:
    """Inside, what the system refuses becomes a StorageError, which says this and why."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{said} ({error.strerror or error})") from error


def write_file(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Write a file whole or not at all, a text as UTF-8; a hard link to what was there keeps it. What is too long for
    memory is given piece by piece.

    What a writer that was killed left beside it goes.

    Raises:
        StorageError: it cannot be written; what was there before is untouched.
    """
    temporary = path.with_name(f".{path.name}.writing-{os.getpid()}")
    with storage_errors(f"{path}: cannot be written"):
        try:
            with temporary.open("wb") as file:
                if isinstance(content, str | bytes):
                    file.write(content.encode() if isinstance(content, str) else content)
                else:
                    file.writelines(content)
            # Else a power cut may leave the new name and none of the content.
            fsync(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        remove_temporaries(path)


def remove_temporaries(path: Path) -> None:
    """Delete what processes that are gone were writing in the place of a file or a folder."""
    start = f".{path.name}.writing-"
    for entry in list(path.parent.iterdir()):
        process = entry.name.removeprefix(start).partition("-")[0]
        if entry.name.startswith(start) and process.isdigit() and not is_alive(int(process)):
            delete(entry)


def delete(entry: Path) -> None:
    """Delete a file, a link or a folder; what is gone already, or stays in a folder, is no error."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def make_parent(out: Path) -> None:
    """Make the folder that a file is about to be written to; raises StorageError."""
    with storage_errors(f"{out.parent}: cannot be made"):
        out.parent.mkdir(parents=True, exist_ok=True)


def write_out(path: Path, content: str | bytes) -> None:
    """`write_file`, in a folder that is made where it is not there."""
    make_parent(path)
    write_file(path, content)


def fsync(path: Path) -> None:
    """Bring a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_folder(temporary: Path, place: Path) -> None:
    """Put a complete folder into its place. What stood there is renamed to `NAME.old-XXXX`, and deleted.

    Raises:
        OSError: a rename failed; the old folder stands in its place again.
    """
    old = place.with_name(f"{place.name}.old-{secrets.token_hex(4)}")
    replaces = place.exists()
    try:
        if replaces:
            os.replace(place, old)
        os.replace(temporary, place)
    except BaseException:
        # An interrupt too.
        if old.exists():
            os.replace(old, place)
        raise
    # A file system that cannot flush a folder is no reason to fail.
    with contextlib.suppress(OSError):
        fsync(place.parent)
    if replaces:
        shutil.rmtree(old, ignore_errors=True)
