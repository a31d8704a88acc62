"""The arguments with which timm builds what one of our models is."""

from __future__ import annotations

from typing import Any

from sightline.convert.timm_read import RULES, STEMS
from sightline.encodings.create import components, encoding_options
from sightline.models import Model, ViTConfig
from sightline.models.architectures.swin import SwinOptions
from sightline.models.embedders.resnet import resnet_options
from sightline.models.timm_names import CLASSES, TIMM_POOLS, timm_arguments

_GELUS = {"exact": "gelu", "tanh": "gelu_tanh", "quick": "quick_gelu"}
_ROTATIONS = {"rope_axial": "cat", "rope_dinov3": "dinov3", "rope_mixed": "mixed"}
_BICUBIC = "bicubic_antialias"
# Epsilons are in no argument that is plain text: a name brings its own.
_VIT = {1e-6: "vit_base_patch16_224", 1e-5: "vit_base_patch16_clip_224"}
# With a LayerScale or none: timm's create_model passes over an argument that is None.
_EVA = {
    (1e-6, True): "vit_small_patch16_rope_224",
    (1e-6, False): "eva_giant_patch14_224",
    (1e-5, True): "vit_small_patch16_dinov3",
    (1e-5, False): "vit_pe_core_tiny_patch16_384",
}


def arguments_for(model: Model) -> dict[str, Any]:
    """`model` and the arguments of timm's `create_model` that come nearest to a model of ours.

    What timm cannot hold is left out; reading the built module back shows it.
    """
    if model.config.architecture == "swin":
        return _swin(model.config)
    config, parts = model.config, {part.name: encoding_options(part) for part in components(model.encoding)}
    table = parts.get("learned_1d")
    # A table of patches alone may be resized by another rule than that of timm's other classes.
    rule = _BICUBIC
    if table is not None and not (table["prefix"] and config.num_prefix_tokens):
        rule = table["interpolation"]
    if parts.keys() & {"rpe_learned", "rpe_learned_shared"}:
        kind, own = "Beit", {"model": "beit_base_patch16_224", "use_rel_pos_bias": "rpe_learned" in parts}
        own["use_shared_rel_pos_bias"] = "rpe_learned_shared" in parts
    elif parts.keys() & _ROTATIONS.keys():
        kind, own = "Eva", _eva(config, parts)
    elif parts.keys() & {"learned_2d", "factorized"} or rule != _BICUBIC:
        kind, own = "NaFlexVit", _naflex(config, parts)
    else:
        kind, own = "VisionTransformer", {"model": _VIT.get(config.norm_eps, _VIT[1e-6])}
        own["pos_embed"] = "none" if table is None else "learn"
        if config.embedder == "resnet":
            options = resnet_options(config)
            own |= {
                "model": STEMS.get(options.layers, STEMS[3, 4, 9]),
                "patch_size": config.patch_size // options.stride,
            }
    size = config.table_size
    values = {
        **vars(config),
        "image_size": list(size) if isinstance(size, tuple) else size,
        # What a hybrid calls its patch is one of its stem's map.
        "patch_size": own.get("patch_size", config.patch_size),
        # timm cuts the product where we round it.
        "mlp_ratio": (config.mlp_hidden + 0.5) / config.dim,
        "qkv_bias": config.qkv_bias is not False,
        # Eva makes one of any number; a name may bring one for None.
        "layer_scale": config.layer_scale or (None if kind == "Eva" else 0),
        # The nearest that timm has.
        "pool": next((theirs for theirs, ours in TIMM_POOLS.items() if ours == config.pool), "map"),
        "class_token": config.has_class_token,
        "fit": config.fit == "pad",
    }
    # What follows from our fields, with its argument in each of timm's classes, in their order.
    derived = (
        (("act_layer", "", "", "act_layer"), _GELUS[config.gelu]),
        # None leaves the norm, and its epsilon, to the model of that name.
        (("norm_layer", "", "", "norm_layer"), "rmsnorm" if config.norm == "rms" else None),
        (("", "swiglu_mlp", "swiglu_mlp", ""), config.mlp == "swiglu"),
        (("final_norm", "", "", "final_norm"), config.final_norm != "none"),
        (("", "use_post_transformer_norm", "", ""), config.final_norm == "before_pool"),
        (("fc_norm", "use_fc_norm", "use_fc_norm", "fc_norm"), config.final_norm == "after_pool"),
        (("", "use_abs_pos_emb", "use_abs_pos_emb", ""), table is not None),
        (("no_embed_class", "no_embed_class", "", ""), table is not None and not table["prefix"]),
        # The module would resize the table by another rule than ours.
        (("dynamic_img_size", "dynamic_img_size", "", ""), table is None or table["interpolation"] == _BICUBIC),
        # Written out, as a name brings its own.
        (("", "attn_pool_num_heads", "", "attn_pool_num_heads"), config.pool_heads or config.heads),
        (("", "attn_pool_mlp_ratio", "", "attn_pool_mlp_ratio"), (config.pool_hidden + 0.5) / config.dim),
    )
    place = CLASSES.index(kind)
    return {
        **own,
        **{theirs: values[ours] for theirs, ours in timm_arguments(kind).items()},
        **{names[place]: value for names, value in derived if names[place]},
    }


def _eva(config: ViTConfig, parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rotary = next(name for name in parts if name in _ROTATIONS)
    options = parts[rotary]
    coordinates = options.get("coordinates")
    reference = options.get("reference") or config.train_grid
    scaled = config.layer_scale is not None
    return {
        "model": _EVA.get((config.norm_eps, scaled), _EVA[1e-6, scaled]),
        # Biases of all three, or of q and v alone.
        "attn_type": "eva" if config.qkv_bias == "qv" else "rope",
        "qkv_fused": True,
        "swiglu_align_to": 0,
        "use_rot_pos_emb": True,
        "rope_type": "dinov3" if coordinates == "centred" else _ROTATIONS[rotary],
        "rope_temperature": options["theta"],
        "rope_grid_indexing": "ij" if options.get("axis_order") == "yx" else "xy",
        "rope_grid_offset": options.get("offset", 0.0),
        "rope_rotate_half": options.get("pairing") == "halves",
        "ref_feat_shape": list(reference) if coordinates == "squeezed" else None,
    }


def _naflex(config: ViTConfig, parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    options = next(iter(parts.values()))
    # Factorised tables are resized along their axis, whatever the mode.
    rule = _BICUBIC if "factorized" in parts else options["interpolation"]
    mode, antialias, aligned = {ours: theirs for theirs, ours in RULES.items()}[rule]
    return {
        "model": "naflexvit_base_patch16_gap",
        "pos_embed": "factorized" if "factorized" in parts else "learned",
        "pos_embed_grid_size": list(config.train_grid),
        "pos_embed_ar_preserving": "learned_2d" in parts or options.get("new_grid") == "aspect",
        "pos_embed_interp_mode": mode,
        "pos_embed_antialias": antialias,
        "pos_embed_align_corners": aligned,
    }


def _swin(config: ViTConfig) -> dict[str, Any]:
    options = SwinOptions.of(config)
    size: Any = config.table_size
    window: Any = options.window if options.table_window is None else options.table_window
    return {
        "model": "swin_tiny_patch4_window7_224",
        "img_size": list(size) if isinstance(size, tuple) else size,
        "patch_size": config.patch_size,
        "in_chans": config.channels,
        "num_classes": config.num_classes,
        "embed_dim": config.dim,
        "depths": list(options.depths),
        "num_heads": list(options.heads),
        "window_size": list(window) if isinstance(window, tuple | list) else window,
        # timm cuts the product where we round it.
        "mlp_ratio": (config.mlp_hidden + 0.5) / config.dim,
        "qkv_bias": config.qkv_bias is not False,
    }
