"""A file or a folder put in the place of another by renames, so that at every moment one that is whole can be found."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
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
    """Delete what processes that are gone were writing beside a file."""
    for entry in _left_beside(path):
        entry.unlink(missing_ok=True)


def make_parent(out: Path) -> None:
    """Make the folder that a file is about to be written to; raises StorageError."""
    with storage_errors(f"{out.parent}: cannot be made"):
        out.parent.mkdir(parents=True, exist_ok=True)


def write_out(path: Path, content: str | bytes) -> None:
    """`write_file`, in a folder that is made where it is not there."""
    make_parent(path)
    write_file(path, content)


def _left_beside(place: Path) -> Iterator[Path]:
    """What was being written beside `place` by processes that are gone."""
    start = f".{place.name}.writing-"
    for entry in list(place.parent.iterdir()):
        process = entry.name.removeprefix(start).partition("-")[0]
        if entry.name.startswith(start) and process.isdigit() and not is_alive(int(process)):
            yield entry


def backup_path(place: Path) -> Path:
    """Where the old folder stands between the two renames that replace it."""
    return place.with_name(f".{place.name}.sightline-old")


def previous_path(path: str | Path) -> Path:
    """Where `write_checkpoint` keeps the checkpoint before the one at `path`."""
    place = Path(os.path.realpath(path))
    return place.with_name(f"{place.name}.previous")


def fsync(path: Path) -> None:
    """Bring a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def commit_folder(temporary: Path, place: Path, previous: Path | None, is_whole: Callable[[Path], bool]) -> None:
    """Put a complete folder into its place; what stood there becomes `previous`, where that is given and it is whole.

    Raises:
        OSError: a rename failed; the old folder stands in its place again.
    """
    aside = backup_path(place)
    replaces = place.exists()
    kept = previous if replaces and previous is not None and is_whole(place) else None
    if replaces:
        os.replace(place, aside)
    try:
        os.replace(temporary, place)
    except BaseException:
        if replaces:
            os.replace(aside, place)
        raise
    # Both folders are whole by now; a file system that cannot flush a folder is no reason to fail.
    with contextlib.suppress(OSError):
        fsync(place.parent)
    if kept is not None:
        if kept.exists():
            os.replace(kept, backup_path(kept))
        os.replace(aside, kept)
        shutil.rmtree(backup_path(kept), ignore_errors=True)
    shutil.rmtree(aside, ignore_errors=True)


def recover(place: Path, is_whole: Callable[[Path], bool]) -> None:
    """Put right what a writer that was killed left beside `place`."""
    aside = backup_path(place)
    if aside.exists():
        if is_whole(place):
            shutil.rmtree(aside)
        else:
            shutil.rmtree(place, ignore_errors=True)
            os.replace(aside, place)
    for entry in _left_beside(place):
        shutil.rmtree(entry, ignore_errors=True)
