"""Foreign weights as they lie on a disk: safetensors, torch files, and numpy archives of flax."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.errors import InputError
from sightline.io.read import check_file, parse_json
from sightline.io.tensors import check_archive, load_tensors

# Where trainers put weights, and how names begin where a module holds the model. Of several the first counts: a running
# mean is what is published.
_MEANS = ["model_ema", "state_dict_ema", "model_ema_state_dict", "ema_state_dict", "ema_model", "ema", "teacher"]
_HOLDERS = ["module", "model", "net", "network", "student", "online_model", "backbone", "shadow"]
_INSIDE = [*_MEANS, "target_encoder", "state_dict", "model_state_dict", "model_state", *_HOLDERS, "encoder", "weights"]
_AROUND = [*_MEANS, *_HOLDERS, "base_encoder", "momentum_encoder", "timm_model"]
_FLAX = ("params/", "opt/target/")


def read_weights(
    file: str | Path, say: Callable[[str], object] = warnings.warn
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a foreign weights file by name, and the arguments that a safetensors file records as `args`.

    A pickle's code is never run. `say` as `unwrapped`'s.

    Raises:
        InputError: the file is missing, damaged, of another kind, asks for code, or holds NaN or infinity.
    """
    file = Path(file)
    if file.suffix == ".npz":
        return _read_arrays(file), {}
    unwrap = partial(unwrapped, say=say)
    tensors = load_tensors(file, unwrap=unwrap)
    return (unwrap(tensors), _recorded(file)) if file.suffix == ".safetensors" else (tensors, {})


def unwrapped(content: Mapping[str, Any], say: Callable[[str], object] = warnings.warn) -> dict[str, Any]:
    """The weights that a training script saved, under the names of the model itself: out of the groups of a checkpoint,
    and without the names of the modules around it. `say` is told in one line which of several are taken."""
    taken, left = [], []
    while groups := [key for key in _INSIDE if _holds_weights(content.get(key))]:
        taken.append(groups[0])
        left += groups[1:]
        content = content[groups[0]]
    if not all(isinstance(name, str) for name in content):
        return dict(content)
    state = {name.replace("_orig_mod.", ""): value for name, value in content.items()}
    while around := [kind for kind in _AROUND if any(name.startswith(f"{kind}.") for name in state)]:
        first, *others = around
        inner = {name.removeprefix(f"{first}."): one for name, one in state.items() if name.startswith(f"{first}.")}
        rest = {name: one for name, one in state.items() if not name.startswith(f"{first}.")}
        if twice := next(iter(inner.keys() & rest.keys()), None):
            raise InputError(f"weights: {first}.{twice} and {twice} are both there (expected one of them)")
        # The same weights once more, or as they were before.
        copies = tuple(f"{kind}." for kind in others if any(name.removeprefix(f"{kind}.") in inner for name in rest))
        taken.append(first)
        left += [one[:-1] for one in copies]
        state = {name: one for name, one in rest.items() if not (copies and name.startswith(copies))} | inner
    if left:
        say(f"weights of {'.'.join(taken)} are taken (and not those of {', '.join(left)})")
    return state


def _holds_weights(value: object) -> bool:
    return isinstance(value, Mapping) and any(hasattr(one, "shape") or _holds_weights(one) for one in value.values())


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
    check_file(file, "a numpy archive")
    try:
        check_archive(file)
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
    for name in [name for name in tensors if name.startswith("Transformer/encoderblock/")]:
        for layer, one in enumerate(tensors.pop(name)):
            tensors[name.replace("encoderblock/", f"encoderblock_{layer}/", 1)] = one
    return tensors
