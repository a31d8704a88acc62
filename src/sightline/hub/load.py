"""Models to and from our folder: `model.safetensors`, `config.json` and the checksums of both."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline import __version__
from sightline.convert import import_weights
from sightline.convert.foreign_folder import read_foreign_folder
from sightline.convert.hf_folder import INDEX, PREPARATION, weight_names
from sightline.convert.open_clip import OPEN_CLIP, OPEN_CLIP_WEIGHTS
from sightline.convert.open_clip_package import build_open_clip
from sightline.convert.timm import import_timm_model, published_link, read_timm_folder
from sightline.convert.weights import unwrapped
from sightline.distributed.machine import preserve_rng_state
from sightline.encodings.create import encoding_options
from sightline.encodings.knob import without_knobs
from sightline.errors import InputError
from sightline.io.checkpoint import verify_checkpoint, write_checkpoint
from sightline.io.config import build_config, errors_of_file
from sightline.io.read import RECORD, read_bytes, read_json, read_text
from sightline.io.run_files import CHECKSUMS, MODEL, TOKENIZER, TRAINING, WEIGHTS, last_checkpoint
from sightline.io.tensors import check_state, load_tensors, read_declared
from sightline.models import Model, ViTConfig, make_model
from sightline.models.init import skip_init
from sightline.models.patch_size import set_patch_size

FORMAT = 2
# What stands in no part is the architecture's. In a part, the field of the part's own name is its `name`.
_PARTS = {
    "head": (
        "head", "head_options", "num_classes", "head_hidden", "head_std", "head_bias", "pool", "pool_prefix",
        "pool_heads", "pool_mlp_ratio",
    ),
    "preparation": ("image_size", "clip_frames", "mean", "std", "interpolation", "crop", "crop_mode"),
    "labels": ("class_names",),
}  # fmt: skip
_ALONE = ("score_link", "origin")


def to_nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by name, those that are there, in their parts; a name that is no field goes to the architecture."""
    rest = dict(flat)
    parts = {
        part: {"name" if name == part else name: rest.pop(name) for name in names if name in rest}
        for part, names in _PARTS.items()
    }
    alone = {name: rest.pop(name) for name in _ALONE if name in rest}
    return {"architecture": {"name": rest.pop("architecture", "vit"), **rest}, **parts, **alone}


def config_from_record(record: Mapping[str, Any]) -> ViTConfig:
    """The configuration whose parts these are.

    Raises:
        InputError: a field is not known (names the nearest), or a value out of range.
    """
    flat = {name: record[name] for name in _ALONE if name in record}
    for part in ("architecture", *_PARTS):
        flat |= {part if name == "name" else name: value for name, value in record[part].items()}
    return build_config(ViTConfig, flat, "model").plain()


def write_model(model: nn.Module, path: str | Path, training: Mapping[str, Any] | None = None, **beside: Any) -> None:
    """`save_model`, with what is known of the run (`training`) and `beside` kept beside the configuration."""
    # In float32 whatever the model computes in: that is what `load_model` builds.
    weights = {
        name: value.float() if value.is_floating_point() else value for name, value in model_tensors(model).items()
    }
    write_checkpoint(path, model_files(config_record(model, training, **beside)), weights)


def model_files(record: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a model's folder beside its weights, of what `config_record` gives."""
    text = record["head"]["head_options"].get("text", {})
    files = {MODEL: record}
    if content := text.get("tokenizer"):
        # A file of its own, as other tools read it.
        options = {**record["head"]["head_options"], "text": {**text, "tokenizer": ""}}
        files = {MODEL: {**record, "head": {**record["head"], "head_options": options}}}
    written = {name: (json.dumps(one, indent=2) + "\n").encode() for name, one in files.items()}
    return written | ({TOKENIZER: content.encode()} if content else {})


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model that its folder holds, by name, as they are: no copies."""
    return without_knobs(_unwrap(model).state_dict())


def config_record(model: nn.Module, training: Mapping[str, Any] | None = None, **beside: Any) -> dict[str, Any]:
    """What `config.json` of a model's folder says; as `write_model`."""
    inner = _unwrap(model)
    if len(inner.blocks) != inner.config.depth:
        raise InputError(
            f"model: {len(inner.blocks)} of its {inner.config.depth} blocks are left; a pruned model cannot be saved"
        )
    config = dataclasses.replace(inner.config, encoding_options=encoding_options(inner.encoding))
    rows, cols = getattr(inner.patch_embed, "patch_size", (0, 0))
    if rows != cols:
        raise InputError(f"model: has patches of {rows}x{cols} pixels (expected set_patch_size of a square to save it)")
    return {
        "format": FORMAT,
        "sightline": __version__,
        # The grid that the encoding was made for is written out.
        **to_nested({**dataclasses.asdict(config), "table_grid": tuple(config.train_grid)}),
        "knob": None if inner.knob is None else inner.knob.value,
        "training": dict(training or {}),
        **beside,
    }


def _unwrap(model: nn.Module) -> Model:
    """The model inside torch.compile's or a data-parallel wrapper."""
    while not isinstance(model, Model):
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, nn.Module):
            raise InputError(f"model: expected a VisionTransformer, got {type(model).__name__}")
        model = inner
    return model


def save_model(model: nn.Module, path: str | Path) -> None:
    """Write a model's folder. One that is there is renamed to `NAME.old-XXXX` and deleted when the new one stands.

    Raises:
        InputError: the folder is the checkpoint of a run, which could not go on from this model.
        StorageError: it cannot be written; what was there is untouched.
    """
    if (Path(path) / TRAINING).exists():
        raise InputError(f"{path}: holds the state of a training, which would be lost; give another folder")
    write_model(model, path)


def _folder(path: str | Path) -> Path:
    """The model's folder, which a run holds as its last checkpoint, whatever else lies beside that."""
    path = Path(path)
    if not (path / CHECKSUMS).exists() and (last := last_checkpoint(path)).exists():
        return last
    return path


def read_config_record(path: str | Path) -> dict[str, Any]:
    """The verified `config.json` of a model's folder or of a run, here or on the Hub as `load_model` names it."""
    return _read_folder(resolve_source(path))[0]


def _read_folder(path: Path) -> tuple[dict[str, Any], dict[str, Path]]:
    """The record of a model's folder, and its verified files."""
    files = verify_checkpoint(_folder(path))
    for name in (MODEL, WEIGHTS):
        if name not in files:
            raise InputError(f"{path}: has no {name}")
    file = files[MODEL]
    record = read_json(file, "the configuration of a model")
    whole = isinstance(record, dict) and all(isinstance(record.get(part), dict) for part in ("architecture", *_PARTS))
    if not whole or record.get("format") != FORMAT or "score_link" not in record:
        raise InputError(f"{file}: is not the configuration of a model (expected format {FORMAT}, with its score_link)")
    if TOKENIZER in files and isinstance(text := record["head"].get("head_options", {}).get("text"), dict):
        text["tokenizer"] = read_text(files[TOKENIZER], 8 * RECORD, "a tokenizer")
    training = record.setdefault("training", {})
    if not isinstance(training, dict) or not isinstance(training.get("config", {}), dict):
        said = "training or training.config is not a group of keys"
        raise InputError(f"{file}: is not the configuration of a model ({said})")
    return record, files


def checksum(path: str | Path) -> str:
    """What tells the weights of a model's folder or of a run from those that replace them; "" where there are none."""
    file = _folder(resolve_source(path)) / CHECKSUMS
    return read_bytes(file, RECORD, "the checksums of a checkpoint").decode("utf-8", "replace") if file.exists() else ""


def load_model(
    source: str | Path,
    *,
    num_classes: int | None = None,
    patch_size: int | tuple[int, int] | None = None,
    allow_nonfinite: bool = False,
    pretrained: bool = True,
    **arguments: Any,
) -> Model:
    """A model in evaluation mode, every byte of its files checked.

    torch's random generators are left as they were, whatever is new in the model, except by `pretrained=False`.

    Args:
        source: a folder that `save_model` wrote, or a run; `hf-hub:owner/name` (with `@revision`) or `local-dir:PATH`
            for such a folder on the Hugging Face Hub or here, or for one of timm's, transformers' or open_clip's;
            `timm:name` for what `timm.create_model(name)` builds, as ours, and `open_clip:NAME/TAG` for open_clip's.
        num_classes: where given and not the model's, the head is new; all other weights are read.
        patch_size: where given, patches of so many pixels, as `set_patch_size` makes them of the weights' own.
        allow_nonfinite: accept weights that are NaN or infinite.
        pretrained: with `timm:`, its published weights; without, those that timm starts from.
        **arguments: with `timm:`, what else `timm.create_model` takes.

    Raises:
        InputError: something is missing, damaged, or does not fit; names it, and both shapes. No partial load.
    """
    if not isinstance(source, str | Path):
        kinds = "hf-hub:owner/name, local-dir:path, timm:name, open_clip:NAME/TAG"
        raise InputError(f"model {source!r}: expected a folder, or {kinds}")
    kind, _, name = str(source).partition(":")
    timm = kind == "timm" and name
    if arguments and not timm:
        raise InputError(f"{source}: only timm: takes {', '.join(arguments)}")
    with contextlib.nullcontext() if timm and not pretrained else preserve_rng_state():
        if timm:
            classes = {} if num_classes is None else {"num_classes": num_classes}
            model = import_timm_model({"model": name, **arguments, **classes}, pretrained=pretrained)
        elif kind == "open_clip" and name:
            model = import_weights("open_clip", *build_open_clip(name))
        else:
            model = _load(resolve_source(source), allow_nonfinite)
        if num_classes not in (None, model.num_classes):
            model.reset_head(num_classes=num_classes)
        if patch_size is not None:
            try:
                set_patch_size(model, patch_size)
            except InputError as error:
                raise InputError(f"{source}: {error}") from None
    return model.eval()


def _load(folder: Path, allow_nonfinite: bool) -> Model:
    if read := read_foreign_folder(folder, allow_nonfinite=allow_nonfinite):
        with errors_of_file(folder):
            return import_weights(*read)
    foreign = read_timm_folder(_folder(folder))
    if foreign is None:
        return _load_folder(folder, allow_nonfinite)
    state = load_tensors(foreign.weights, allow_nonfinite=allow_nonfinite, unwrap=unwrapped)
    model = import_weights("timm", state, foreign.given)
    link = published_link(model.config, foreign.given["model"], foreign.tag)
    model.config = model.config.replace(class_names=foreign.class_names, score_link=link)
    return model


def resolve_source(source: str | Path) -> Path:
    """The folder on this machine that `source` means; a Hub's is fetched, or taken from its cache.

    Raises:
        InputError: the Hub has none, or cannot be reached; says which.
    """
    kind, _, name = str(source).partition(":")
    if kind == "local-dir" and name:
        return Path(name)
    if kind != "hf-hub" or not name:
        return Path(source)
    repository, _, revision = name.partition("@")
    try:
        import huggingface_hub

        fetch = partial(huggingface_hub.snapshot_download, repository, revision=revision or None)
        # Nothing else of a repository is fetched, and none of these is code.
        files = [MODEL, CHECKSUMS, TOKENIZER, INDEX, *PREPARATION, OPEN_CLIP]
        found = Path(fetch(allow_patterns=files))
        # One file of weights, or several, or an older repository's torch file, read without running anything.
        for name in OPEN_CLIP_WEIGHTS if (found / OPEN_CLIP).exists() else (WEIGHTS,):
            if not (found / name).exists():
                found = Path(fetch(allow_patterns=[*files, name]))
            if (found / name).exists():
                return found
        found = Path(fetch(allow_patterns=[*files, *(weight_names(found) or ["pytorch_model.bin"])]))
    # The errors of a hub have no common class; all are one line here.
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{source}: cannot be fetched ({said})") from None
    return found


def _load_folder(path: Path, allow_nonfinite: bool) -> Model:
    record, files = _read_folder(path)
    file = files[WEIGHTS]
    declared = read_declared(file)
    try:
        config = config_from_record(record)
        # Before shapes are asked for, which takes a moment a block.
        blocks = len({name.split(".")[1] for name in declared if name.startswith("blocks.")})
        if blocks < config.depth:
            raise InputError(f"depth {config.depth}: {file.name} holds {blocks} blocks")
        # Without memory, so that weights that do not fit are refused whatever the configuration asks for.
        with torch.device("meta"):
            there = make_model(config)
        if record.get("knob") is not None:
            there.set_knob(record["knob"])
    except InputError as error:
        raise InputError(f"{path}: config.json: {error}") from None
    check_state(without_knobs(there.state_dict()), declared, str(file))
    with skip_init():
        model = make_model(config)
    if record.get("knob") is not None:
        model.set_knob(record["knob"])
    model.load_state_dict(load_tensors(file, allow_nonfinite=allow_nonfinite))
    return model
