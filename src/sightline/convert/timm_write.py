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
_SWIN = ("image_size", "patch_size", "channels", "num_classes", "dim", "mlp_ratio", "qkv_bias")
Parts = dict[str, dict[str, Any]]
"""The parts of an encoding, and their options."""


def arguments_for(model: Model) -> dict[str, Any]:
    """`model` and the arguments of timm's `create_model` that come nearest to a model of ours.

    What timm cannot hold is left out; reading the built module back shows it.
    """
    config = model.config
    parts: Parts = {part.name: encoding_options(part) for part in components(model.encoding)}
    swin = config.architecture == "swin"
    kind, own = ("VisionTransformer", _swin(config)) if swin else _class_of(config, parts)
    table, size = parts.get("learned_1d"), config.table_size
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
    names = timm_arguments(kind).items()
    if swin:
        return own | {theirs: values[ours] for theirs, ours in names if ours in _SWIN}
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
    given = own | {theirs: values[ours] for theirs, ours in names}
    return given | {called[place]: value for called, value in derived if called[place]}


def _class_of(config: ViTConfig, parts: Parts) -> tuple[str, dict[str, Any]]:
    """timm's class, and arguments that no other has: the first one that has the encoding."""
    if parts.keys() & {"rpe_learned", "rpe_learned_shared"}:
        return "Beit", {
            "model": "beit_base_patch16_224",
            "use_rel_pos_bias": "rpe_learned" in parts,
            "use_shared_rel_pos_bias": "rpe_learned_shared" in parts,
        }
    if rotary := next((name for name in parts if name in _ROTATIONS), None):
        return "Eva", _eva(config, rotary, parts[rotary])
    table = parts.get("learned_1d")
    # A table of patches alone may be resized by another rule than that of timm's other classes.
    apart = table if table and not (table["prefix"] and config.num_prefix_tokens) else {}
    if parts.keys() & {"learned_2d", "factorized"} or apart.get("interpolation", _BICUBIC) != _BICUBIC:
        return "NaFlexVit", _naflex(config, *next(iter(parts.items())))
    own: dict[str, Any] = {"model": _VIT.get(config.norm_eps, _VIT[1e-6])}
    own["pos_embed"] = "none" if table is None else "learn"
    if config.embedder == "resnet":
        options = resnet_options(config)
        own["model"] = STEMS.get(options.layers, STEMS[3, 4, 9])
        own["patch_size"] = config.patch_size // options.stride
    return "VisionTransformer", own


def _eva(config: ViTConfig, rotary: str, options: dict[str, Any]) -> dict[str, Any]:
    coordinates, scaled = options.get("coordinates"), config.layer_scale is not None
    reference = list(options.get("reference") or config.train_grid)
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
        "ref_feat_shape": reference if coordinates == "squeezed" else None,
    }


def _naflex(config: ViTConfig, part: str, options: dict[str, Any]) -> dict[str, Any]:
    factorised = part == "factorized"
    # Factorised tables are resized along their axis, whatever the mode.
    rule = _BICUBIC if factorised else options["interpolation"]
    mode, antialias, aligned = {ours: theirs for theirs, ours in RULES.items()}[rule]
    return {
        "model": "naflexvit_base_patch16_gap",
        "pos_embed": "factorized" if factorised else "learned",
        "pos_embed_grid_size": list(config.train_grid),
        "pos_embed_ar_preserving": part == "learned_2d" or options.get("new_grid") == "aspect",
        "pos_embed_interp_mode": mode,
        "pos_embed_antialias": antialias,
        "pos_embed_align_corners": aligned,
    }


def _swin(config: ViTConfig) -> dict[str, Any]:
    options = SwinOptions.of(config)
    window: Any = options.made_for
    return {
        "model": "swin_tiny_patch4_window7_224",
        "depths": list(options.depths),
        "num_heads": list(options.heads),
        "window_size": list(window) if isinstance(window, tuple | list) else window,
    }
