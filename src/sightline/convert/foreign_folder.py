"""Folders of models of images and texts that other projects wrote."""

from __future__ import annotations

from pathlib import Path

from sightline.convert.base import Arguments, State
from sightline.convert.hf_folder import read_transformers_folder, transformers_record
from sightline.convert.open_clip import OPEN_CLIP, OPEN_CLIP_WEIGHTS
from sightline.convert.timm import read_timm_folder
from sightline.convert.weights import unwrapped
from sightline.errors import InputError
from sightline.io.read import RECORD, read_json, read_text
from sightline.io.run_files import TOKENIZER
from sightline.io.tensors import load_tensors


def is_foreign_folder(folder: Path) -> bool:
    """Whether timm, transformers or open_clip wrote a model into a folder."""
    if (folder / OPEN_CLIP).exists() or transformers_record(folder) is not None:
        return True
    return read_timm_folder(folder) is not None


def read_foreign_folder(folder: Path, *, allow_nonfinite: bool = False) -> tuple[str, State, Arguments] | None:
    """The project, the weights and the arguments of a model of transformers' or open_clip's, with the content of a
    `tokenizer.json` that is there; None for another folder.

    Raises:
        InputError: a file is missing or damaged; says which.
    """
    weights = next((folder / name for name in OPEN_CLIP_WEIGHTS if (folder / name).exists()), None)
    others = transformers_record(folder) is not None
    # A repository of the Hub may have both kinds.
    if (folder / OPEN_CLIP).exists() and not (others and (weights is None or weights.name == OPEN_CLIP_WEIGHTS[-1])):
        project, config = "open_clip", read_json(folder / OPEN_CLIP, "the configuration of an open_clip model")
        if not isinstance(config, dict):
            raise InputError(f"{folder / OPEN_CLIP}: is not the configuration of an open_clip model")
        if weights is None:
            raise InputError(f"{folder}: has no weights (expected {' or '.join(OPEN_CLIP_WEIGHTS)})")
        state = load_tensors(weights, allow_nonfinite=allow_nonfinite, unwrap=unwrapped)
    else:
        read = read_transformers_folder(folder, allow_nonfinite=allow_nonfinite)
        if read is None:
            return None
        config, state, prepared = read
        project = "owlvit" if config["model_type"] == "owlvit" else "transformers"
        config |= {"preprocessor_config": prepared} if project == "transformers" else {}
    if (tokenizer := folder / TOKENIZER).exists():
        config["tokenizer"] = read_text(tokenizer, 8 * RECORD, "a tokenizer")
    return project, state, config
