"""Foreign weights as they lie on a disk: safetensors, torch files, and numpy archives of flax."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.checkpoint import load_tensors, plain_names
from sightline.declared import refuse_archive
from sightline.errors import InputError
from sightline.reading import check_regular, parse_json

# Where trainers put the weights beside their own state; a running mean is what they publish.
_INSIDE = ("model_ema", "state_dict_ema", "model", "state_dict", "teacher")
_FLAX = ("params/", "opt/target/")


def read_weights(file: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a foreign weights file by name, and the arguments that a safetensors file records as `args`.

    A pickle's code is never run.

    Raises:
        InputError: the file is missing, damaged, of another kind, asks for code, or holds NaN or infinity.
    """
    file = Path(file)
    if file.suffix == ".npz":
        return _read_arrays(file), {}
    tensors = plain_names(load_tensors(file, inside=_INSIDE))
    return tensors, _recorded(file) if file.suffix == ".safetensors" else {}


def _recorded(file: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        text = (opened.metadata() or {}).get("args")
    try:
        found = parse_json(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read_arrays(file: Path) -> dict[str, Tensor]:
    check_regular(file, "a numpy archive")
    try:
        refuse_archive(file)
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{file}: is no numpy archive of numbers ({' '.join(str(error).split())[:120]})") from None
    prefix = next((one for one in _FLAX if any(name.startswith(one) for name in found)), "")
    tensors = {
        name.removeprefix(prefix): torch.from_numpy(np.array(value))
        for name, value in found.items()
        if name.startswith(prefix) and value.dtype.kind == "f"
    }
    # Blocks that flax's scan holds in one array, one after the other, get their numbers.
    apart = {}
    for name, tensor in tensors.items():
        if name.startswith("Transformer/encoderblock/"):
            for layer, one in enumerate(tensor):
                apart[name.replace("encoderblock/", f"encoderblock_{layer}/", 1)] = one
        else:
            apart[name] = tensor
    return apart
