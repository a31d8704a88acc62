"""The checkpoint folder: written whole or not at all, and checked byte by byte before anything in it is parsed.

A folder holds plain files and `checksums.json`, which is written last and names each file's size and SHA-256. It is
made beside its place and renamed into it, so a reader finds the old folder or the new one, never a mixture. Between
the two renames that replace an old folder it stands aside as `.NAME.sightline-old`, where all of this looks for it.
What is whole is not deleted before another whole one stands.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import pickle
import re
import secrets
import shutil
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError
from sightline.io.atomic import backup_path, commit_folder, fsync, previous_path, recover, storage_errors
from sightline.io.declared import refuse_archive, refuse_folded
from sightline.io.read import RECORD, check_file, parse_json, read_bytes, similar_file_hint
from sightline.io.run_files import CHECKSUMS

if TYPE_CHECKING:
    from torch import Tensor

# Its size and its digest.
Entry = Mapping[str, int | str]
PICKLES = (".pt", ".pth", ".bin", ".pkl", ".ckpt")
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


def strip_wrapper_prefixes(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state under the names of the bare model, without the prefixes (inner ones too) of torch.compile and DDP."""
    return {re.sub(r"^(module\.)+", "", name.replace("_orig_mod.", "")): tensor for name, tensor in state.items()}


def save_tensors(state: Mapping[str, Tensor]) -> Callable[[Path], None]:
    """What writes `state` as a safetensors file, for `write_checkpoint`; wrappers' prefixes are stripped.

    Tensors that share memory are written each in full.
    """

    def write(file: Path) -> None:
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        seen: set[int] = set()
        whole = {}
        for name, tensor in strip_wrapper_prefixes(state).items():
            tensor = tensor.detach().cpu().contiguous()
            storage = tensor.untyped_storage()
            if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:
                tensor = tensor.clone(memory_format=torch.contiguous_format)
            seen.add(tensor.untyped_storage().data_ptr())
            whole[name] = tensor
        try:
            save_file(whole, file)
        except SafetensorError as error:
            # It wraps the system's "File too large" or "No space left on device".
            raise OSError(str(error).rsplit("I/O error: ", 1)[-1]) from error

    return write


def load_tensors(
    file: str | Path,
    *,
    allow_nonfinite: bool = False,
    unwrap: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> dict[str, Tensor]:
    """The tensors of one weights file on the CPU, by name: safetensors, or a torch file that holds nothing else.

    A pickle's code is never run. `unwrap` takes the tensors out of what else a torch file may hold (a trainer's state
    and arguments).

    Raises:
        InputError: the file is missing, damaged, of another kind, asks for code, or holds NaN or infinity.
    """
    file = Path(file)
    if check_file(file, "a file of weights") == 0:
        raise InputError(f"{file}: is empty")
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        with _damage_named(file):
            tensors = load_file(file)
    elif file.suffix in PICKLES or (file.suffix == ".tar" and Path(file.stem).suffix in PICKLES):
        tensors = _load_pickle(file, unwrap)
    else:
        raise InputError(f"{file}: is no weights file (known: .safetensors, {', '.join(PICKLES)})")
    if not allow_nonfinite:
        check_finite(file, tensors)
    return tensors


def check_finite(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise InputError, with the first names, where the tensors of a file hold NaN or infinity."""
    bad = [name for name, tensor in tensors.items() if not is_finite(tensor)]
    if bad:
        raise InputError(f"{file}: weights are not finite (NaN or infinity) in {_some(bad)}")


def read_declared(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by its header alone, on the meta device: names, shapes and dtypes.

    Raises:
        InputError: the header is damaged.
    """
    from safetensors import safe_open

    found = {}
    with _damage_named(file), safe_open(file, "pt") as opened:
        for name in opened.keys():  # noqa: SIM118  # it is no mapping
            part = opened.get_slice(name)
            shape = part.get_shape()
            # Of the first no rows; a single number has none.
            found[name] = part[(slice(0),) * bool(shape)].new_empty(shape, device="meta")
    return found


@contextlib.contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, RuntimeError) as error:
        cause = re.sub(r"^Error while deserializing( header)?: ", "", str(error))
        truncated = "not fully covered" in cause or "too small" in cause
        raise InputError(f"{file}: is {'truncated' if truncated else 'damaged'} ({cause})") from None


def _load_pickle(file: Path, unwrap: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None) -> dict[str, Tensor]:
    import torch

    try:
        if zipfile.is_zipfile(file):
            refuse_archive(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.serialization.safe_globals(_plain_records() if unwrap else []):
                content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f"{file}: is refused: it is not a torch file of tensors alone, and loading it could run code; where you "
            "trust it, load it with torch and write its state with safetensors.torch.save_file, then give that file"
        ) from None
    except InputError:
        raise
    except Exception as error:
        # What a damaged pickle raises has no common class.
        cause = (str(error) or type(error).__name__).splitlines()[0][:120]
        raise InputError(f"{file}: is truncated or damaged ({cause})") from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: holds a {type(content).__name__}; expected tensors by name")
    content = dict(unwrap(content)) if unwrap else content
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise InputError(
                f"{file}: key {name!r} holds a {type(value).__name__}; expected tensors by name, and nothing else "
                f"(its keys: {_some([str(key) for key in content])})"
            )
    refuse_folded(file, content)
    return content


def _plain_records() -> list[Any]:
    """What trainers keep beside weights, and making runs nothing: their options, and numpy's numbers."""
    import numpy as np

    named = [(np.float64(0).__reduce__()[0], f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    return [argparse.Namespace, type(Path()), np.dtype, *(type(np.dtype(kind)) for kind in "efdil?"), *named]


def is_finite(tensor: Tensor) -> bool:
    """Whether a tensor of any kind holds no NaN and no infinity."""
    # There is no isfinite for 8-bit floats.
    return bool((tensor.float() if tensor.element_size() == 1 else tensor).isfinite().all())


def check_state(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], where: str) -> None:
    """Compare the tensors that a model expects with those that were found: names, shapes and dtypes.

    Raises:
        InputError: anything differs; one line with every kind of difference, the first names of each and both shapes.
    """
    extra = [f"{name} {list(found[name].shape)}" for name in found if name not in expected]
    missing, shapes, dtypes = [], [], []
    for name, want in expected.items():
        have = found.get(name)
        if have is None:
            missing.append(f"{name} {list(want.shape)}")
        elif want.shape != have.shape:
            transposed = ", transposed" if want.ndim > 1 and want.shape == have.shape[::-1] else ""
            shapes.append(f"{name} is {list(have.shape)}, expected {list(want.shape)}{transposed}")
        elif want.dtype != have.dtype:
            there, here = (str(one.dtype).removeprefix("torch.") for one in (have, want))
            dtypes.append(f"{name} {list(have.shape)} is {there}, expected {here}")
    kinds = {"missing": missing, "not expected": extra, "of another shape": shapes, "of another dtype": dtypes}
    faults = [f"{len(items)} {kind}: {_some(items)}" for kind, items in kinds.items() if items]
    if faults:
        raise InputError(f"{where}: weights do not fit the model; {'; '.join(faults)}")


def _some(items: list[str]) -> str:
    return ", ".join(items[:3]) + (f", ... ({len(items)} in all)" if len(items) > 3 else "")
