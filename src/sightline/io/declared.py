"""What a file of weights says that it holds, summed and bounded before anything of it is unfolded."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.distributed import machine
from sightline.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

# Trained numbers hardly shrink, so what grows to more than this many times its size in the file holds none of them.
_MOST_TIMES = 16
# Tables of zeros are small files; up to here nothing is asked.
_SMALL_BYTES = 64 << 20


def refuse_archive(file: Path) -> None:
    """Refuse a zip archive (.npz, .pt) whose records are declared to unfold beyond the bound, or differ from checksums.

    Raises:
        InputError: as said; names the record.
        zipfile.BadZipFile, OSError, EOFError, zlib.error: it cannot be read.
    """
    with zipfile.ZipFile(file) as archive:
        refuse_size(file, sum(record.file_size for record in archive.infolist()))
        # torch and numpy do not compare records with the checksums that the archive holds.
        damaged = archive.testzip()
    if damaged:
        raise InputError(f"{file}: is damaged (the checksum of {damaged} differs)")


def refuse_size(file: Path, declared: int) -> None:
    """Refuse so many declared bytes for a file of its size, or beyond the memory that there is.

    Raises:
        InputError: says both sizes.
    """
    there = file.stat().st_size
    if declared > max(_SMALL_BYTES, _MOST_TIMES * there):
        raise InputError(
            f"{file}: has {format_bytes(there)} and declares {format_bytes(declared)} of numbers; weights unfold to at "
            f"most {_MOST_TIMES} times their file"
        )
    refuse_beyond_memory(declared, str(file))


def refuse_beyond_memory(needed: int, what: str) -> None:
    """Refuse what takes more bytes than are available on this machine.

    Raises:
        InputError: says both.
    """
    available = machine.available_memory()
    if available is not None and needed > available:
        raise InputError(
            f"{what}: needs {format_bytes(needed)} of memory; {format_bytes(available)} are available here"
        )


def refuse_folded(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not plain numbers in memory, or that show more numbers than they hold.

    Raises:
        InputError: one is sparse, nested, quantised or on the meta device, repeats its numbers by strides, or all
            together are beyond the bound of `refuse_size`.
    """
    import torch

    total = 0
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
        total += (held := tensor.numel() * tensor.element_size())
        repeats = any(size > 1 and not step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        if repeats or held > tensor.untyped_storage().nbytes():
            raise InputError(
                f"{file}: {name} {list(tensor.shape)} repeats its numbers (strides {list(tensor.stride())}); expected "
                f"each number in the file: save tensor.contiguous()"
            )
    refuse_size(file, total)


def format_bytes(count: int) -> str:
    """Bytes as people read them: "512 B", "21 GiB", "1.2 TiB"; any size."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min(max(count.bit_length() - 1, 0) // 10, len(units) - 1)
    # Decimal, because a float ends at 10**308.
    value = Decimal(count) / (1 << 10 * power)
    if value >= 1000 and power < len(units) - 1:
        value, power = value / 1024, power + 1
    shown = f"{value:.2g}" if value >= 10000 else f"{value:.0f}" if value >= 10 or not power else f"{value:.1f}"
    return f"{shown} {units[power]}"
