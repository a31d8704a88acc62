"""Tensors of which each rank holds a part: files of safetensors in one folder, read by any number of ranks.

Each rank writes its own file, through torch's `HuggingFaceStorageWriter`: its header says where the parts belong, so
that there is no `.metadata`, which is a pickle. The first writes the rest, and the checksums last.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.distributed.ranks import Ranks
from sightline.errors import InputError, StorageError
from sightline.io.checkpoint import Entry, sealed, write_checkpoint
from sightline.io.run_files import whole_of
from sightline.io.tensors import check_finite

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.device_mesh import DeviceMesh


def shard_files(files: Mapping[str, Path], whole: str) -> list[Path]:
    """The files that hold a folder's `whole`, as `model.safetensors`: it, or its parts, or nothing."""
    if whole in files:
        return [files[whole]]
    return [path for name, path in sorted(files.items()) if whole_of(name) == whole]


def write_together(
    path: str | Path,
    files: Mapping[str, bytes | Callable[[Path], None]],
    tensors: Mapping[str, Mapping[str, Tensor]],
    ranks: Ranks,
    *,
    keep_previous: bool = False,
) -> None:
    """As `write_checkpoint`, by all ranks; each must call it.

    Args:
        files: what the first writes; nothing is asked of the others.
        tensors: by the file that would hold them whole, and by name: each rank's parts (DTensors), or what all have.

    Raises:
        InputError, StorageError: as `write_checkpoint`, on every rank.
        TypeError: something is no tensor, which the writer would take and nobody could read.
    """
    for some in tensors.values():
        for name, value in some.items():
            _check_tensor(name, value)
    told = False

    def beside(folder: Path) -> Mapping[str, Entry]:
        nonlocal told
        told = True
        ranks.all_gather_json(str(folder))
        return _written(folder, tensors, ranks)

    if ranks.is_main:
        try:
            write_checkpoint(path, files, keep_previous=keep_previous, beside=beside)
        finally:
            if not told:
                ranks.all_gather_json(None)
    elif (place := ranks.all_gather_json(None)[0]) is not None:
        _written(Path(place), tensors, ranks)


def _check_tensor(name: str, value: object) -> None:
    import torch

    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: is a {type(value).__name__}, expected a tensor")


def _written(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], ranks: Ranks) -> Mapping[str, Entry]:
    """Write this rank's parts; the entries of all."""
    entries: dict[str, Entry] = {}
    for whole, some in tensors.items():
        stem = Path(whole).stem
        with _said(folder):
            found = _write_parts(folder / stem, some, ranks)
        if found is not None:
            name = f"{stem}-{ranks.rank + 1:05d}-of-{ranks.size:05d}.safetensors"
            with _said(folder):
                found.rename(folder / name)
                entries[name] = sealed(folder / name)
    said = ranks.all_gather_json(entries)
    if ranks.is_main:
        with _said(folder):
            for whole in tensors:
                (folder / Path(whole).stem).rmdir()
    return {name: entry for one in said for name, entry in one.items()}


def _write_parts(place: Path, tensors: Mapping[str, Tensor], ranks: Ranks) -> Path | None:
    """What this rank holds in a file of its own; None where that is nothing."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    writer = HuggingFaceStorageWriter(str(place), save_distributed=True)
    save(dict(tensors), storage_writer=writer, process_group=ranks.group)
    return next(iter(place.glob(f"shard-{ranks.rank + 1:05d}-*.safetensors")), None)


@contextlib.contextmanager
def _said(folder: Path) -> Iterator[None]:
    """What torch and the system say of a disk, in one line."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise StorageError(f"{folder.parent}: a part of the checkpoint cannot be written ({_line(cause)})") from None
    except OSError as error:
        raise StorageError(f"{folder.parent}: a part of the checkpoint cannot be written ({_line(error)})") from None


def _line(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0])[:200]


def tensor_shapes(files: Sequence[Path]) -> dict[str, Tensor]:
    """The tensors that parts make together, by their headers alone, on the meta device.

    Raises:
        InputError: a header is damaged, or they leave a gap.
    """
    import torch
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    with _damage_named(files):
        said = _reader(files).read_metadata().state_dict_metadata
        # The reader of these files knows no other kind.
        found = {name: one for name, one in said.items() if isinstance(one, TensorStorageMetadata)}
        for name, one in found.items():
            held = sum(math.prod(chunk.sizes) for chunk in one.chunks)
            if held != math.prod(one.size):
                raise ValueError(f"{name}: {held} of {math.prod(one.size)} values are there")
        return {name: torch.empty(one.size, dtype=one.properties.dtype, device="meta") for name, one in found.items()}


def read_tensors(files: Sequence[Path], into: Mapping[str, Tensor], *, allow_nonfinite: bool = False) -> None:
    """Fill tensors from parts, whole ones or what this rank holds of them; each rank reads what it needs.

    Args:
        into: of the shapes and kinds that `tensor_shapes` says.

    Raises:
        InputError: a file is damaged, holds no such tensor, or one of them holds NaN or infinity.
    """
    from torch.distributed.checkpoint.state_dict_loader import load

    with _damage_named(files), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(dict(into), storage_reader=_reader(files), no_dist=True)
    if not allow_nonfinite:
        check_finite(files[0], {name: local_tensor(value) for name, value in into.items()})


def is_part(tensor: Tensor) -> bool:
    """Whether this rank holds a part of it (a DTensor)."""
    return hasattr(tensor, "to_local")


def local_tensor(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: a part, or all of it."""
    return tensor.to_local() if is_part(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def full_tensor(tensor: Tensor) -> Tensor:
    """All of a tensor; where ranks hold parts of it, each must call it."""
    return tensor.full_tensor() if is_part(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def copy_to_host(tensor: Tensor, place: Tensor) -> Tensor:
    """A tensor of which each rank holds the same part as before, as a copy in memory.

    Args:
        place: on the processor, of the shape of `local_tensor(tensor)`, which it is copied to.
    """
    kept = place.copy_(local_tensor(tensor), non_blocking=place.is_pinned())
    if not is_part(tensor):
        return kept
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    mesh, shape = _on_processors(tensor.device_mesh), tensor.shape
    return DTensor.from_local(kept, mesh, tensor.placements, run_check=False, shape=shape, stride=tensor.stride())


@functools.lru_cache(maxsize=1)
def _on_processors(mesh: DeviceMesh) -> DeviceMesh:
    """The same ranks on their processors; each must call it."""
    from torch.distributed.device_mesh import init_device_mesh

    return mesh if mesh.device_type == "cpu" else init_device_mesh("cpu", tuple(mesh.shape))


def _reader(files: Sequence[Path]) -> HuggingFaceStorageReader:
    """Of these files alone, whatever else lies beside them."""
    from torch.distributed.checkpoint.filesystem import FileSystem
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    class These(FileSystem):
        def ls(self, path: object) -> list[str]:
            return [str(file) for file in files]

    reader = HuggingFaceStorageReader(str(files[0].parent))
    reader.fs = These()
    return reader


@contextlib.contextmanager
def _damage_named(files: Sequence[Path]) -> Iterator[None]:
    """What torch raises of damaged parts has no common class; all are one line here."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except InputError:
        raise
    except CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise InputError(f"{files[0]}: is damaged, or another part of it ({_line(cause)})") from None
    except Exception as error:
        raise InputError(f"{files[0]}: is damaged, or another part of it ({_line(error)})") from None
