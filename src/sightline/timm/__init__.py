"""Our models in timm's registry: `import sightline.timm`, then `timm.create_model("sightline_vit_base_patch16")`.

Every name of `sightline.models.list_models()` is registered with `sightline_` before it. timm's arguments mean what
they mean for timm's own vision transformers, and every field of `ViTConfig` is an argument too:

    timm.create_model("sightline_vit_small_patch16", encoding="lookhere_90", num_classes=10, drop_path_rate=0.1)

An encoding gets the heads that the size has. With lookhere_90, the six heads of `vit_small` are four directed ones (up,
right, down, left) and two that see everything, which is what the public code makes of "triangles-none" at six heads;
give `num_heads=12` for the eight directions of the paper's ViT-B. The model prints its encoding and keeps both in
`model.config`. docs/how-to/timm.md says what differs from timm's own models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from sightline.distributed.machine import import_timm
from sightline.encodings.other_size import fits, square_of, tables_of
from sightline.errors import InputError, unknown_name_error
from sightline.hub.load import config_from_record
from sightline.models import ViTConfig, list_models, make_model, model_config
from sightline.models.timm_names import TIMM_POOLS, timm_arguments, timm_cfg
from sightline.tokens.grid import Grid

timm = import_timm()

PREFIX = "sightline_"

# timm's arguments -> fields of `ViTConfig` that mean the same.
_FIELDS = {**timm_arguments("VisionTransformer"), "drop_path_rate": "drop_path"}
# Any size runs, whatever these say.
_IDLE = ("dynamic_img_size", "strict_img_size")
# Arguments without a counterpart: the one value that asks for nothing, and what to do instead of another.
_NEUTRAL: dict[str, tuple[object, str]] = {
    **dict.fromkeys(
        ("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_block_rate"),
        (0.0, "drop_path_rate drops branches"),
    ),
    "weight_init": ("", "the initial values are fixed"),
    "fix_init": (False, "the initial values are fixed"),
    "proj_bias": (True, "qkv_bias and block_bias say which biases there are"),
    "pos_embed": ("learn", "encoding names one"),
    "no_embed_class": (False, "encoding_options={'prefix': False} says it"),
    "pre_norm": (False, "norm_pre=True and patch_bias=False say it"),
    "fc_norm": (False, "final_norm='after_pool' says it"),
    "use_naflex": (False, "a list of images of any sizes runs as it is"),
    "pruned": (False, "depth says how many blocks there are"),
}


class UnknownArgumentError(InputError, TypeError):
    """An argument that these models do not take; a TypeError too, as timm's own models raise."""


def config_fields(**arguments: Any) -> dict[str, Any]:
    """timm's arguments of a model as fields of `ViTConfig`; such fields stay as they are.

    Raises:
        UnknownArgumentError: an argument that is neither; names the nearest.
        InputError: an argument without a counterpart, at a value that asks for something, or one said in two ways.
    """
    known = [field.name for field in dataclasses.fields(ViTConfig)]
    fields: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in _IDLE:
            continue
        if name in _NEUTRAL:
            neutral, instead = _NEUTRAL[name]
            if value != neutral:
                raise InputError(f"{name} {value!r}: sightline's models have none (expected {neutral!r}; {instead})")
            continue
        field = _FIELDS.get(name, name)
        if field not in known:
            near = unknown_name_error("argument", name, {*known, *_FIELDS, *_IDLE, *_NEUTRAL}, limit=100)
            raise UnknownArgumentError(str(near))
        if name == "drop_path_rate":
            # timm's rates rise with depth; `drop_path` is one for all layers.
            value = (0.0, value) if value else 0.0
        elif name == "global_pool":
            value = TIMM_POOLS.get(value, value)
        elif name == "dynamic_img_pad":
            value = "pad" if value else "exact"
        elif field == "image_size":
            value = tuple(Grid.checked(value, name))
        if fields.setdefault(field, value) != value:
            raise InputError(f"{name} {value!r}: {field} is {fields[field]!r} already (expected one of the two)")
    return fields


def _build(
    size: str,
    pretrained: bool = False,
    *,
    pretrained_cfg: Any = None,
    pretrained_cfg_overlay: dict[str, Any] | None = None,
    pretrained_model_args: dict[str, Any] | None = None,
    cache_dir: str | Path | None = None,
    features_only: bool = False,
    out_indices: int | Sequence[int] | None = None,
    feature_cls: str = "getter",
    device: Any = None,
    dtype: Any = None,
    knob: float | None = None,
    **arguments: Any,
) -> Any:
    """The model of a size, or timm's wrapper around it that gives features.

    Raises:
        InputError: `pretrained` without a source of weights, or an argument that cannot be met.
    """
    variant = PREFIX + size
    builder = timm.models
    if feature_cls != "getter":
        raise InputError(f"feature_cls {feature_cls!r}: expected 'getter' (only the model puts tokens in image order)")
    source = builder.resolve_pretrained_cfg(variant, pretrained_cfg, pretrained_cfg_overlay) if pretrained else None
    # What names weights in timm's `PretrainedCfg`.
    if source and not any((source.url, source.file, source.hf_hub_id, source.state_dict)):
        raise InputError(
            f"{variant}: no pretrained weights are published (expected pretrained=False; checkpoint_path takes a file, "
            "sightline.load_model a folder)"
        )
    if arguments.get("num_classes") != (pretrained_model_args or arguments).get("num_classes"):
        # Other classes than those of the folder it is opened from, which are called otherwise.
        arguments.pop("class_names", None)
    # The configuration always pools; not to is a state that timm's users ask for by name.
    unpooled = arguments.get("global_pool") == ""
    if unpooled:
        del arguments["global_pool"]
    model: Any = make_model(model_config(size, **config_fields(**arguments)).plain()).to(device, dtype)
    if knob is not None:
        model.set_knob(knob)
    if unpooled:
        model.reset_classifier(model.num_classes, "")
    # Weights from elsewhere say how their images were prepared; without them the model does.
    own = {} if isinstance(pretrained_cfg, dict) else timm_cfg(model.config)
    return builder.build_model_with_cfg(
        lambda **_: model,
        variant,
        pretrained,
        pretrained_cfg=pretrained_cfg,
        pretrained_cfg_overlay=own | (pretrained_cfg_overlay or {}),
        pretrained_model_args=pretrained_model_args,
        pretrained_filter_fn=_of_this_size,
        cache_dir=cache_dir,
        features_only=features_only,
        out_indices=model.out_indices if out_indices is None else out_indices,
        feature_cfg={"feature_cls": feature_cls},
        num_classes=model.num_classes,
        in_chans=model.in_chans,
        img_size=tuple(Grid.checked(model.config.image_size)),
    )


def _of_this_size(state: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
    """Weights of a model for square images of another size, with tables of positions of this one's, as timm makes them.
    Where no tables of this size say what the encoding's rule does, the encoding stays that of the weights' size."""
    start, config = "encoding.", model.config
    inner = {name.removeprefix(start): one for name, one in state.items() if name.startswith(start)}
    if fits(model.encoding, inner):
        return state

    def of_square(side: int) -> ViTConfig:
        return config.replace(table_grid=(*config.train_grid[:-2], side, side))

    if (found := square_of(inner, lambda side: model.make_positions(of_square(side)))) is None:
        return state
    side, given = found
    tables = tables_of(given, model.encoding)
    if tables is None:
        anchor, knob = model.anchor, model.knob
        model.config = of_square(side)
        model.encoding = model.make_positions(model.config).to(anchor.device, anchor.dtype)
        if knob is not None:
            model.set_knob(knob.value)
    return state | {start + name: one for name, one in (tables or {}).items()}


def _knows_ours(read: Callable[..., Any]) -> Callable[..., Any]:
    """timm's reader of the config.json behind `local-dir:` and `hf-hub:`, which then reads those of `save_model` and
    `push_to_hub` too."""

    def opened(*place: Any, **options: Any) -> Any:
        record, name, given = read(*place, **options)
        if not isinstance(name, Mapping):
            return record, name, given
        # timm has a name of its own for that part.
        config = config_from_record({**record, "architecture": name, "labels": record["label_names"]})
        size = "vit_base_patch16"
        plain = vars(model_config(size))
        # In timm's words, since whoever opens it may ask for others.
        words = {ours: theirs for theirs, ours in timm_arguments("VisionTransformer").items()}
        given = {words.get(name, name): one for name, one in vars(config).items() if one != plain[name]}
        # Whoever asks for another size of images gets the encoding as it was trained.
        given["table_grid"] = tuple(config.train_grid)
        source = {key: record[key] for key in ("source", "file", "hf_hub_id") if key in record}
        return {**timm_cfg(config), **source}, PREFIX + size, {**given, "knob": record.get("knob")}

    return opened


for _reader in ("load_model_config_from_path", "load_model_config_from_hf"):
    setattr(timm.models._factory, _reader, _knows_ours(getattr(timm.models._factory, _reader)))


def _register(size: str) -> Callable[..., Any]:
    """timm's registry takes the function's name and module, and `default_cfgs` of that module."""

    def create(pretrained: bool = False, **arguments: Any) -> Any:
        return _build(size, pretrained, **arguments)

    create.__name__ = create.__qualname__ = PREFIX + size
    create.__doc__ = f"`{size}` of `sightline.models`, by timm's arguments and the fields of `ViTConfig`."
    return timm.models.register_model(create)


__all__ = ["PREFIX", "UnknownArgumentError", "config_fields"]
default_cfgs = timm.models.generate_default_cfgs({PREFIX + one: timm_cfg(model_config(one)) for one in list_models()})
globals().update({PREFIX + one: _register(one) for one in list_models()})
