"""Tensors in one file: safetensors, or what torch saves where it holds tensors alone; no pickle's code is run."""

from __future__ import annotations

import argparse
import contextlib
import functools
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError
from sightline.io.read import check_file

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

PICKLES = (".pt", ".pth", ".bin", ".pkl", ".ckpt")


def strip_wrapper_prefixes(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state under the names of the bare model, without the prefixes (inner ones too) of torch.compile and DDP."""
    return {re.sub(r"^(module\.)+", "", name.replace("_orig_mod.", "")): tensor for name, tensor in state.items()}


def save_tensors(state: Mapping[str, Tensor], file: Path) -> None:
    """Write a safetensors file; wrappers' prefixes are stripped. Tensors that share memory are written each in full.

    Raises:
        OSError: it cannot be written.
    """
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
    bad = [] if allow_nonfinite else [name for name, tensor in tensors.items() if not is_finite(tensor)]
    if bad:
        raise InputError(f"{file}: weights are not finite (NaN or infinity) in {_some(bad)}")
    return tensors


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
            check_archive(file)
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
    _check_plain(file, content)
    return content


def check_archive(file: Path) -> None:
    """Compare the records of a zip archive (.npz, .pt) with its checksums, as torch does not.

    Raises:
        InputError: one differs; names it.
        zipfile.BadZipFile, OSError, EOFError, zlib.error: it cannot be read.
    """
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()
    if damaged:
        raise InputError(f"{file}: is damaged (the checksum of {damaged} differs)")


def _check_plain(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not plain numbers in memory: sparse, nested, quantised or on the meta device."""
    import torch

    for name, tensor in tensors.items():
        kinds = {
            "a nested tensor": tensor.is_nested,
            "on the meta device and has no values": tensor.is_meta,
            "quantised": tensor.is_quantized,
            "sparse": tensor.layout != torch.strided,
            f"a {type(tensor).__name__}": type(tensor) not in (torch.Tensor, torch.nn.Parameter),
        }
        kind = next((words for words, found in kinds.items() if found), None)
        if kind is not None:
            raise InputError(f"{file}: {name} is {kind}; expected plain tensors of numbers")


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


def is_part(tensor: Tensor) -> bool:
    """Whether this rank holds a part of it (a DTensor)."""
    return hasattr(tensor, "to_local")


def local_tensor(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: a part, or all of it."""
    return tensor.to_local() if is_part(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def full_tensor(tensor: Tensor) -> Tensor:
    """All of a tensor; where ranks hold parts of it, each must call it."""
    return tensor.full_tensor() if is_part(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def copy_to_host(tensor: Tensor) -> Tensor:
    """A contiguous copy in memory; of a DTensor this rank's part, where each rank must call it."""
    import torch

    local = local_tensor(tensor.detach())
    copied = torch.empty(local.shape, dtype=local.dtype).copy_(local)
    if not is_part(tensor):
        return copied
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    mesh, shape = _on_processors(tensor.device_mesh), tensor.shape
    return DTensor.from_local(copied, mesh, tensor.placements, run_check=False, shape=shape, stride=tensor.stride())


@functools.lru_cache(maxsize=1)
def _on_processors(mesh: DeviceMesh) -> DeviceMesh:
    """The same ranks on their processors; each must call it."""
    from torch.distributed.device_mesh import init_device_mesh

    return mesh if mesh.device_type == "cpu" else init_device_mesh("cpu", tuple(mesh.shape))
