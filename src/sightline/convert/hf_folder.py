"""A folder as transformers saves it: its configuration, its weights, and how images are prepared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sightline.convert.weights import unwrapped
from sightline.errors import InputError
from sightline.io.read import read_json
from sightline.io.tensors import load_tensors

INDEX = "model.safetensors.index.json"
WEIGHTS = ("model.safetensors", INDEX, "pytorch_model.bin")
PREPARATION = ("preprocessor_config.json", "processor_config.json")
# Pillow's numbers.
_FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
# Processors of which a `size` of one number is the shorter side.
_SHORTER = ("CLIP", "Bit")


def transformers_record(folder: Path) -> dict[str, Any] | None:
    """The `config.json` of a folder of transformers', or None where the folder is of another kind."""
    try:
        record = read_json(folder / "config.json", "the configuration of a model")
    except InputError:
        # Who reads it as ours says what is wrong with it.
        return None
    # A model of timm's in transformers' wrapper is timm's.
    theirs = isinstance(record, dict) and isinstance(record.get("model_type"), str) and "architecture" not in record
    return record if theirs else None


def read_transformers_folder(
    folder: Path, *, allow_nonfinite: bool = False
) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Any]] | None:
    """The configuration, the weights (of one file or of several) and the image preprocessor's configuration, {} for
    none; or None where transformers wrote nothing.

    Raises:
        InputError: a file is missing or damaged; says which.
    """
    if (record := transformers_record(folder)) is None:
        return None
    if not (files := weight_names(folder)):
        expected = " or ".join(WEIGHTS)
        raise InputError(f"{folder}: has a config.json of transformers' and no weights (expected {expected})")
    state: dict[str, Tensor] = {}
    for file in files:
        state |= load_tensors(folder / file, allow_nonfinite=allow_nonfinite, unwrap=unwrapped)
    said = next((folder / name for name in PREPARATION if (folder / name).exists()), None)
    return record, state, {} if said is None else _group(said, "image_processor")


def weight_names(folder: Path) -> list[str]:
    """The files of weights that a folder has, or should have by its index."""
    there = next((name for name in WEIGHTS if (folder / name).exists()), None)
    if there != INDEX:
        return [there] if there else []
    # Files of this folder, whatever it says.
    return sorted({Path(str(one)).name for one in _group(folder / INDEX, "weight_map").values()})


def _group(file: Path, name: str) -> dict[str, Any]:
    """A group of keys in a file of JSON, or the whole where it has none of that name."""
    whole = read_json(file, "a group of keys")
    if not isinstance(whole, dict) or not isinstance(found := whole.get(name, whole), dict):
        raise InputError(f"{file}: is no group of keys")
    return found


def prepared_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ViTConfig` of a `preprocessor_config.json`; what ours cannot say keeps our default."""
    found: dict[str, Any] = {}
    # Ours normalise values in [0, 1].
    scale = 255 * given.get("rescale_factor", 1 / 255) if given.get("do_rescale", True) else 255.0
    for name, nothing in (("mean", 0.0), ("std", 1.0)):
        if values := given.get(f"image_{name}") if given.get("do_normalize", True) else [nothing] * 3:
            found[name] = tuple(float(one) / scale for one in values)
    if given.get("resample") in _FILTERS:
        found["interpolation"] = _FILTERS[given["resample"]]
    kind, size = str(given.get("image_processor_type") or given.get("feature_extractor_type")), given.get("size")
    shorter = kind.startswith(_SHORTER) if isinstance(size, int) else "shortest_edge" in (size or {})
    resized, shown = _pair(size), _pair(given.get("crop_size") if given.get("do_center_crop") else size)
    if resized and shown and given.get("do_resize", True):
        crop = min(1.0, *(one / other for one, other in zip(shown, resized, strict=True)))
        found |= {"image_size": shown, "crop": crop, "crop_mode": "center" if shorter else "squash"}
    return found


def _pair(given: Any) -> tuple[int, int] | None:
    """Height and width; None for what is no size."""
    sides = given if isinstance(given, Mapping) else {"shortest_edge": given}
    height, width = (sides.get(one, sides.get("shortest_edge")) for one in ("height", "width"))
    return (height, width) if isinstance(height, int) and isinstance(width, int) else None
