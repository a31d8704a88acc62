"""A model that begins with another's weights: all but what is asked to be another thing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from torch import Tensor

from sightline import models
from sightline.encodings.create import encoding_options
from sightline.encodings.knob import without_knobs
from sightline.errors import InputError
from sightline.hub.load import load_model
from sightline.io.tensors import check_state
from sightline.models import Model, ViTConfig
from sightline.models.contrastive import ContrastiveOptions
from sightline.models.create import SIZES, with_architecture
from sightline.models.patch_size import kernel_side, resize_patch_kernel, resized_config
from sightline.models.zero_shot import class_features
from sightline.tokens.grid import Grid

_LOG = logging.getLogger("sightline")
_KERNEL = "patch_embed.proj.weight"
# What says how images and clips are cut.
_CUTS = ("embedder", "embedder_options", "clip_frames", "image_size", "patch_size", "fit")


def create_model(name: str | None = None, *, init_from: str | Path | Model | None = None, **options: Any) -> Model:
    """Build a vision transformer, anew or from the weights of another.

    With `init_from` the model is that of the checkpoint, but for the options that are given: another `encoding`
    starts anew, as does the head for another `num_classes`, other `class_names`, another kind of head (with the
    pooling, where one of all tokens stands in a classifier's place) or a `head_std`, and everything else keeps its
    weights. What is
    new, and what of the checkpoint is not used, is logged as a warning and kept in the model's `reinitialized`. Another
    `patch_size`, or an embedder with another kernel, resizes the kernel of the patches by its pseudo-inverse.

    Args:
        name: a registered model (`list_models()`), as "vit_base_patch16"; with `init_from` it may be left out, and
            is compared with the checkpoint where it is given.
        init_from: what `load_model` takes, or a model.
        **options: fields of `ViTConfig`, as `encoding="rope_axial"`, `num_classes=10`, `image_size=384`, `pool="mean"`,
            `encoding_options={"theta": 100.0}`.

    Raises:
        InputError: an unknown name or field (names the nearest), a value out of range, or weights that do not fit
            what was asked for; names them, and both shapes.
    """
    if init_from is None:
        if name is None:
            raise InputError("create_model: expected the name of a model, or init_from")
        return models.create_model(name, **options)
    trained = init_from if isinstance(init_from, Model) else load_model(init_from)
    where = "init_from" if isinstance(init_from, Model) else str(init_from)
    if name is not None:
        _check_name(name, options, trained, where)
    model = init_model_from(trained, where, **options)
    before, after = trained.config, model.config
    same = (before.patch_size, before.heads) == (after.patch_size, after.heads) and _same_encoding(trained, model)
    if model.reinitialized or not same:
        _LOG.warning("%s", describe_init(trained, model, where))
    return model


def init_model_from(trained: Model, where: str = "init_from", **options: Any) -> Model:
    """`create_model(init_from=trained, **options)` without a word; `where` names the checkpoint in errors."""
    before, config = trained.config, derive_config(trained.config, **options)
    model = models.make_model(config)
    # As many classes, but others: the weights of those mean nothing to these.
    renamed = None not in (before.class_names, config.class_names) and config.class_names != before.class_names
    heads = [(one.num_classes, one.head, one.pooled_dim) for one in (config, before)]
    # How a head begins is asked of a new one alone.
    new_head = heads[0] != heads[1] or renamed or options.get("head_std") is not None
    changed = {"encoding.": config.encoding != before.encoding, "head.": new_head}
    if config.has_classifier != before.has_classifier:
        # What pools is a classifier's.
        changed |= {"attn_pool.": True, "fc_norm.": True}
    elsewhere = tuple(part for part, anew in changed.items() if anew)
    ours, theirs = without_knobs(model.state_dict()), without_knobs(trained.state_dict())
    if _KERNEL in theirs:
        # Before it is inflated: a kernel over frames is not resized.
        theirs = {**theirs, _KERNEL: resize_patch_kernel(theirs[_KERNEL], before, config)}
    if len(before.train_grid) == 2 and len(config.train_grid) == 3:
        theirs = _inflated(model, theirs, changed["encoding."])
    wanted = {name: tensor for name, tensor in ours.items() if not name.startswith(elsewhere)}
    found = {name: tensor for name, tensor in theirs.items() if not name.startswith(elsewhere)}
    check_state(wanted, found, where)
    if new_head and config.head == "owlvit" and config.head_options.get("text") and _text_tower(before):
        found |= _queries_of_words(trained, config, {name: one for name, one in ours.items() if name not in wanted})
    model.load_state_dict({**ours, **found})
    model.reinitialized = tuple(name for name in ours if name not in found)
    if trained.knob is not None and _same_encoding(trained, model):
        model.set_knob(trained.knob.value)
    return model


def _text_tower(config: ViTConfig) -> dict[str, Any]:
    """The head options of a detector with the text tower of this model; {} where it has none."""
    options = config.head_options
    if not options.get("text") or config.head not in ("contrastive", "owlvit"):
        return {}
    width = options.get("embed_dim" if config.head == "contrastive" else "query_dim")
    return {"text": options["text"], "query_dim": width or ContrastiveOptions.embed_dim}


def _queries_of_words(trained: Model, config: ViTConfig, head: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the weights of a new `owlvit` head, those that a model with a text tower gives: the tower, a query for each
    name of a class, and of another detector all that does not hang on its classes."""
    state = trained.state_dict()
    if "head.text_proj.bias" in state:
        raise InputError("head owlvit: text_proj_bias true of the text tower is not supported (expected false)")
    found = {name: state[name] for name in head if name in state and state[name].shape == head[name].shape}
    return found | {"head.queries": class_features(trained, config.class_names or (), ("{}",))}


def _inflated(model: Model, state: dict[str, Tensor], encoding_anew: bool) -> dict[str, Tensor]:
    """The weights of a model of images as those of `model`, which is one of clips (ViViT section 3.4)."""
    parts = {"patch_embed.": model.patch_embed.inflated}
    if not encoding_anew:
        parts["encoding."] = model.encoding.inflate_from_image
    for start, inflated in parts.items():
        own = {name.removeprefix(start): one for name, one in state.items() if name.startswith(start)}
        state = {name: one for name, one in state.items() if not name.startswith(start)}
        state |= {start + name: one for name, one in inflated(own).items()}
    return state


def derive_config(trained: ViTConfig, **options: Any) -> ViTConfig:
    """The configuration of `create_model(init_from=)` with these options: the same encoding keeps the grid that it was
    made for, whatever the size of the images."""
    options = with_architecture(vars(trained), options)

    def is_new(field: str) -> bool:
        return field in options and options[field] != getattr(trained, field)

    changes: dict[str, Any] = {"table_grid": trained.train_grid}
    if is_new("embedder"):
        given = {key: options[key] for key in _CUTS if key in options}
        bare = trained.replace(**{"embedder_options": {}, "table_grid": None, **given})
        # The kernel stays as it is, unless it is asked to be another one; an image's tables are kept, for each frame.
        side = kernel_side(trained) if options["embedder"] == "flexible" else None
        changes["embedder_options"] = {} if side is None else {"base": side}
        changes["table_grid"] = (*bare.train_grid[:-2], *trained.train_grid[-2:])
    if is_new("encoding"):
        # The options were the old encoding's.
        changes |= {"encoding_options": {}, "table_grid": None}
    if is_new("num_classes"):
        changes["class_names"] = None
    if is_new("task") and not trained.has_classifier:
        # The head was the other task's.
        changes["head"] = "linear"
    head = {**changes, **options}.get("head", trained.head)
    if head != trained.head:
        changes["head_options"] = {}
    if head == "owlvit":
        options = {**options, "head_options": _text_tower(trained) | options.get("head_options", {})}
    if is_new("patch_size") and isinstance(options["patch_size"], int):
        # Says which sizes divide the images.
        fitted = trained.replace(fit=options.get("fit", trained.fit))
        resized_config(fitted, options["patch_size"], options.get("image_size"))
    return trained.replace(**{**changes, **options}).plain()


def _same_encoding(trained: Model, model: Model) -> bool:
    same = trained.config.encoding == model.config.encoding
    return same and encoding_options(trained.encoding) == encoding_options(model.encoding)


def _check_name(name: str, options: dict[str, Any], trained: Model, where: str) -> None:
    """Refuse a registered size, with the options changed, that is not the checkpoint's."""
    models.model_config(name)  # Refuses a name that is not known.
    fields = SIZES[name]
    # Other patches are made of the weights' own.
    same = {key: value for key, value in options.items() if key in fields and key != "patch_size"}
    # Heads share the widths of the weights; the training image, the encoding and the pooling are the checkpoint's own.
    free = ("image_size", "heads", "mlp_ratio", "encoding", "pool", "architecture_options")

    def shape(config: ViTConfig) -> dict[str, Any]:
        # Of a Swin's options, windows are a choice at each size.
        own = {"depths": config.architecture_options.get("depths"), "MLP width": config.mlp_hidden}
        return {key: getattr(config, key) for key in fields if key not in free} | own

    has, expected = shape(trained.config), shape(models.model_config(name, **same))
    if wrong := [f"{key} {has[key]} (expected {one})" for key, one in expected.items() if has[key] != one]:
        raise InputError(f"{where}: is no {name}: {', '.join(wrong)}")


def describe_init(trained: Model, model: Model, where: str) -> str:
    """What of `model` is new and what of `trained` is not used, in a line."""
    own, new = without_knobs(model.state_dict()), set(model.reinitialized)
    unused = [name for name in without_knobs(trained.state_dict()) if name in new or name not in own]
    before, after = trained.config.encoding, model.config.encoding
    said = f"encoding {after}" + (f" instead of {before}" if after != before else "")
    for words, now, then in (
        ("{} heads", model.config.heads, trained.config.heads),
        ("images of {}", _pixels(model.config), _pixels(trained.config)),
        ("patches of {} px", model.config.patch_size, trained.config.patch_size),
    ):
        if now != then:
            said += f", {words.format(now)} instead of {then}"
    names = ", ".join(model.reinitialized) or "nothing"
    return f"{where}: {said}; new: {names}; not used: {', '.join(unused) or 'nothing'}; all else as it was"


def _pixels(config: ViTConfig) -> str:
    height, width = Grid.checked(config.image_size)
    return f"{height} px" if height == width else f"height {height} and width {width} px"
