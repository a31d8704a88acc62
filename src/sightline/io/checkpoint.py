"""A checkpoint folder: safetensors and JSON files with checksums, written under another name and renamed when complete.

    checksums.json               size and SHA-256 of every other file, written last
    config.json                  the model's configuration, and the record of its training
    model.safetensors            the weights, whole, whatever number of ranks trained them
    training/shard-*.safetensors   what the next step needs: one file a rank (torch.distributed.checkpoint)
    log.jsonl, ...

A reader sees no folder or a complete one. Nothing in it is a pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError, StorageError
from sightline.io.atomic import fsync, replace_folder, storage_errors
from sightline.io.read import RECORD, check_file, parse_json, read_bytes, similar_file_hint
from sightline.io.run_files import CHECKSUMS, TOKENIZER, TRAINING, WEIGHTS
from sightline.io.tensors import save_tensors

if TYPE_CHECKING:
    from torch import Tensor

# As torch.distributed.checkpoint names the part of a single rank.
_ONE_PART = "shard-00001-model-00001-of-00001.safetensors"


def write_checkpoint(
    path: str | Path,
    files: Mapping[str, bytes],
    weights: Mapping[str, Tensor],
    training: Mapping[str, Tensor] | None = None,
    *,
    ranks: Ranks = SINGLE_RANK,
) -> None:
    """Write a checkpoint folder; every rank of `ranks` calls this. Files get the modes that umask says.

    Args:
        path: where it will stand; a link is followed. A checkpoint that is there is replaced: killed between the two
            renames of that, the old one is left as `NAME.old-XXXX`.
        files: name -> content, written by the first rank.
        weights: what `model.safetensors` holds, whole; only the first rank's are written.
        training: DTensors, of which each rank writes its part, or tensors that all ranks have.

    Raises:
        InputError: `path` is a file, or a folder that is no checkpoint and not empty.
        StorageError: it cannot be written; what was there is untouched, and nothing is left behind.
    """
    place = Path(os.path.realpath(path))
    temporary = Path(ranks.broadcast(str(place.with_name(f".{place.name}.tmp-{secrets.token_hex(4)}"))))
    with storage_errors(f"{path}: cannot be written"):
        try:
            if ranks.is_main:
                _refuse_foreign(place)
                temporary.mkdir(parents=True)
                for name, content in files.items():
                    (temporary / name).write_bytes(content)
                save_tensors(weights, temporary / WEIGHTS)
            if training is not None:
                ranks.broadcast(None)
                _save_parts(training, temporary / TRAINING, ranks)
            if ranks.is_main:
                _write_checksums(temporary)
                replace_folder(temporary, place)
        finally:
            if ranks.is_main:
                # Once it was moved it is there no more.
                shutil.rmtree(temporary, ignore_errors=True)


def _refuse_foreign(place: Path) -> None:
    if place.exists() and not place.is_dir():
        raise InputError(f"{place}: is a file; a checkpoint is a folder")
    if place.is_dir() and not (place / CHECKSUMS).exists() and any(place.iterdir()):
        raise InputError(f"{place}: holds other files and no {CHECKSUMS}, so it is not a checkpoint to be replaced")


def _save_parts(tensors: Mapping[str, Tensor], folder: Path, ranks: Ranks) -> None:
    if ranks.size == 1:
        # The same file without the library, whose import takes a second or two.
        folder.mkdir()
        save_tensors(dict(sorted(tensors.items())), folder / _ONE_PART)
        return
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    _ignore_single_process()
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        # In one order, so that a run that goes on writes the same bytes.
        save(dict(sorted(tensors.items())), storage_writer=writer, process_group=ranks.group)
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        raise StorageError(f"{folder.parent}: rank {rank} cannot write its part ({_line(cause)})") from error


def _write_checksums(folder: Path) -> None:
    table, files = {}, sorted(file for file in folder.rglob("*") if file.is_file())
    for file in files:
        # safetensors writes for the user alone.
        file.chmod(folder.stat().st_mode & 0o666)
        name = file.relative_to(folder).as_posix()
        table[name] = {"bytes": file.stat().st_size, "sha256": _checksum(file)}
    (folder / CHECKSUMS).write_text(json.dumps({"files": table}, indent=2), encoding="utf-8")
    for place in (*files, folder / CHECKSUMS, *{file.parent for file in files}):
        fsync(place)


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify_checkpoint(path: str | Path) -> dict[str, Path]:
    """The files of a checkpoint folder by name, each compared with its checksum.

    Raises:
        InputError: there is no checkpoint, or one of its files is missing, truncated or altered; names it.
    """
    place = Path(path)
    if place.is_file():
        raise InputError(
            f"{path}: is one file; weights alone do not say which model they belong to: give the folder that "
            f"save_model wrote (model.safetensors, config.json, {CHECKSUMS})"
        )
    if not place.is_dir():
        raise InputError(f"{path}: no such checkpoint folder{similar_file_hint(place, folder=True)}")
    files = {}
    for name, (size, checksum) in _read_table(place / CHECKSUMS).items():
        file = place / name
        if not file.exists():
            raise InputError(f"{file}: is missing from the checkpoint")
        found = check_file(file)
        most = RECORD * (8 if name == TOKENIZER else 1)
        if file.suffix == ".json" and found > most:
            raise InputError(f"{file}: is larger than {most} bytes, expected a record in JSON")
        if found < size:
            raise InputError(f"{file}: is truncated ({found} of {size} bytes)")
        try:
            same = found == size and _checksum(file) == checksum
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from None
        if not same:
            raise InputError(f"{file}: differs from its checksum; the file was damaged or changed")
        files[name] = file
    return files


def _read_table(file: Path) -> dict[str, tuple[int, str]]:
    if not file.exists():
        raise InputError(f"{file.parent}: holds no {CHECKSUMS}; it is not a checkpoint, or was not written to the end")
    content = read_bytes(file, RECORD, "the checksums of a checkpoint")
    try:
        table = parse_json(content)["files"]
        entries = {str(name): (entry["bytes"], entry["sha256"]) for name, entry in table.items()}
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in entries):
            raise ValueError
        if any(type(size) is not int for size, _ in entries.values()):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"{file}: is damaged or truncated") from None
    return entries


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors in the safetensors files of a folder, whole or in parts, by their headers.

    Raises:
        InputError: a file is damaged.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    with _damage_named(folder):
        found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
        return {name: tuple(one.size) for name, one in found.items()}  # pyright: ignore[reportAttributeAccessIssue]


def read_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, or this rank's part of them (DTensors), from the safetensors files of a folder, which any number of
    ranks wrote.

    Raises:
        InputError: a file is damaged, or holds no such tensor.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    _ignore_single_process()
    with _damage_named(folder):
        load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)


@contextlib.contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    """What safetensors and torch raise of a damaged file, as an InputError; out of memory and the like pass."""
    from safetensors import SafetensorError
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        raise InputError(f"{folder}: cannot be read ({_line(next(iter(error.failures.values()))[0])})") from error
    except (SafetensorError, KeyError, OSError) as error:
        raise InputError(f"{folder}: cannot be read ({_line(error)})") from error


def _ignore_single_process() -> None:
    # For good: what restores filters is not for threads.
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def _line(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__)[:200]
