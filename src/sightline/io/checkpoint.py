"""The checkpoint folder: written whole or not at all, and checked byte by byte before anything in it is parsed.

A folder holds plain files and `checksums.json`, which is written last and names each file's size and SHA-256. It is
made beside its place and renamed into it, so a reader finds the old folder or the new one, never a mixture. Between
the two renames that replace an old folder it stands aside as `.NAME.sightline-old`, where all of this looks for it.
What is whole is not deleted before another whole one stands.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.errors import InputError
from sightline.io.atomic import backup_path, commit_folder, fsync, previous_path, recover, storage_errors
from sightline.io.read import RECORD, check_file, parse_json, read_bytes, similar_file_hint
from sightline.io.run_files import CHECKSUMS

if TYPE_CHECKING:
    pass

# Its size and its digest.
Entry = Mapping[str, int | str]
# Nanoseconds after which a file that changes has another time: those of a file system tick by up to two seconds (FAT).
_SETTLED = 3 * 10**9


def write_checkpoint(
    path: str | Path,
    files: Mapping[str, bytes | Callable[[Path], None]],
    *,
    keep_previous: bool = False,
    beside: Callable[[Path], Mapping[str, Entry]] | None = None,
) -> None:
    """Write `files` (name -> bytes, or a function that writes to the path it is given) as one checkpoint folder.

    An old checkpoint at `path` is replaced, whatever else was put into it included; a symbolic link is followed.
    Killed at any moment, this leaves the old folder or the new one complete. Files get the modes that umask says.

    Args:
        keep_previous: an old checkpoint that is whole becomes that at `previous_path(path)` once the new one stands;
            one that is damaged never does, and what is there and is no checkpoint stays.
        beside: writes more files into the folder that it is given, and says which, each as `sealed`.

    Raises:
        InputError: `path` is a file, or a folder that is no checkpoint and not empty.
        StorageError: something could not be written; the old checkpoint is as it was and nothing is left behind.
    """
    place = Path(os.path.realpath(path))
    for name in files:
        if not name or name != Path(name).name or name == CHECKSUMS:
            raise ValueError(f"{name!r} cannot be the name of a file in a checkpoint")
    temporary = place.with_name(f".{place.name}.writing-{os.getpid()}-{secrets.token_hex(4)}")
    with storage_errors(f"{path}: cannot be written"):
        place.parent.mkdir(parents=True, exist_ok=True)
        refuse_foreign(path)
        recover(place, _is_whole)
        previous = previous_path(place)
        if not keep_previous or previous.is_symlink() or previous.is_file() or _is_foreign(previous):
            previous = None
        else:
            recover(previous, _is_whole)
        temporary.mkdir()
        try:
            _fill(temporary, files, {} if beside is None else beside(temporary))
            commit_folder(temporary, place, previous, _is_whole)
        finally:
            # Once it was moved it is there no more.
            shutil.rmtree(temporary, ignore_errors=True)


def tidied(path: str | Path) -> None:
    """Put right what a writer that was killed left beside a checkpoint folder, as `write_checkpoint` does before it
    writes; where a link or something else than a checkpoint stands in its place, nothing.

    Raises:
        StorageError: something cannot be moved or deleted.
    """
    with storage_errors(f"{path}: what a killed writer left beside it cannot be moved or deleted"):
        place = Path(path)
        if not (place.is_symlink() or place.is_file() or _is_foreign(place)):
            recover(place, _is_whole)


def sealed(file: Path) -> Entry:
    """What the checksums of a folder say of a file in it, which is on the disk then."""
    # The folder was made under the umask; a writer that goes its own way (safetensors: 0600) is put right.
    file.chmod(file.parent.stat().st_mode & 0o666)
    entry: Entry = {"bytes": file.stat().st_size, "sha256": _digest(file)}
    fsync(file)
    return entry


def _fill(folder: Path, files: Mapping[str, bytes | Callable[[Path], None]], beside: Mapping[str, Entry]) -> None:
    table = dict(beside)
    for name, content in files.items():
        file = folder / name
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            content(file)
        table[name] = sealed(file)
    (folder / CHECKSUMS).write_bytes(_dump_table(table))
    fsync(folder / CHECKSUMS)
    fsync(folder)


def _is_foreign(place: Path) -> bool:
    return place.is_dir() and not (place / CHECKSUMS).exists() and any(place.iterdir())


def refuse_foreign(path: str | Path) -> None:
    """Raise InputError where `path` is a file, or a folder that is no checkpoint and not empty; links are followed."""
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_dir():
        raise InputError(f"{path}: is a file; a checkpoint is a folder")
    if _is_foreign(place):
        raise InputError(f"{path}: holds other files and no {CHECKSUMS}, so it is not a checkpoint to be replaced")


def _digest(file: Path) -> str:
    """Computed once of a file as it is: a command reads a model's record, and then its weights."""
    found = file.stat()
    mark = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    # What was written just now may be written again within the same tick of the file system's clock.
    settled = time.time_ns() - found.st_ctime_ns > _SETTLED
    return (_digest_of if settled else _digest_of.__wrapped__)(file, mark)


@functools.lru_cache(maxsize=64)
def _digest_of(file: Path, mark: tuple[int, ...]) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _dump_table(table: object) -> bytes:
    return (json.dumps({"files": table}, indent=2, sort_keys=True) + "\n").encode()


def _is_whole(place: Path) -> bool:
    try:
        return place.exists() and bool(verify_checkpoint(place))
    except InputError:
        return False


def checkpoint_exists(path: str | Path) -> bool:
    """Whether there is something at `path` to read, the copy that a killed writer left aside included."""
    place = Path(os.path.realpath(path))
    return place.exists() or backup_path(place).exists()


def verify_checkpoint(path: str | Path) -> dict[str, Path]:
    """The files of a checkpoint folder by name, after each was compared with its checksum.

    Raises:
        InputError: there is no checkpoint, or one of its files is missing, truncated or altered; it is named.
    """
    place = Path(os.path.realpath(path))
    if not place.exists() and backup_path(place).exists():
        place = backup_path(place)
    if place.is_file():
        raise InputError(
            f"{path}: is one file; weights alone do not say which model they belong to: give the folder that "
            f"save_model wrote (model.safetensors, config.json, {CHECKSUMS})"
        )
    if not place.is_dir():
        if place.exists():
            check_file(place, "the folder of a checkpoint", where=path)
        raise InputError(f"{path}: no such checkpoint folder{similar_file_hint(place)}")
    files = {}
    for name, (size, digest) in _read_table(place / CHECKSUMS, path).items():
        file = place / name
        if not file.exists():
            raise InputError(f"{path}/{name}: is missing from the checkpoint")
        found = check_file(file, where=f"{path}/{name}")
        if name.endswith(".json") and max(found, size) > RECORD:
            raise InputError(f"{path}/{name}: is larger than {RECORD} bytes, expected a record in JSON")
        if found < size:
            raise InputError(f"{path}/{name}: is truncated ({found} of {size} bytes)")
        try:
            same = found == size and _digest(file) == digest
        except OSError as error:
            raise InputError(f"{path}/{name}: cannot be read ({error.strerror})") from None
        if not same:
            raise InputError(f"{path}/{name}: differs from its checksum; the file was damaged or changed")
        files[name] = file
    return files


def _read_table(file: Path, path: str | Path) -> dict[str, tuple[int, str]]:
    if not file.exists():
        raise InputError(f"{path}: holds no {CHECKSUMS}; it is not a checkpoint, or it was not written to the end")
    content = read_bytes(file, RECORD, "the checksums of a checkpoint", where=f"{path}/{CHECKSUMS}")
    try:
        table = parse_json(content)["files"]
        entries = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in table.items()}
        written = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in entries.items()}
        # Written in one way only, so that a flipped byte anywhere in this file shows as well.
        if content != _dump_table(written) or any(name != Path(name).name for name in entries):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{path}/{CHECKSUMS}: is damaged or truncated; it is not as it was written, and has no checksum of its own"
        ) from None
    return entries
