"""The arguments with which timm builds what one of our models is."""

from __future__ import annotations

from typing import Any

from sightline.convert.timm_reading import RULES
from sightline.encodings.create import split_options
from sightline.models import ViTConfig
from sightline.models.timm_names import TIMM_POOLS, arguments_of

_GELUS = {"exact": "gelu", "tanh": "gelu_tanh", "quick": "quick_gelu"}
# None leaves the norm, and its epsilon, to the model of that name.
_NORMS = {"layer": None, "rms": "rmsnorm"}
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


def arguments_for(config: ViTConfig) -> dict[str, Any]:
    """`model` and the arguments of timm's `create_model` that come nearest to `config`.

    What timm cannot hold is left out; reading the built module back shows it.
    """
    parts = split_options(config.encoding, config.encoding_options)
    names = set(parts)
    if names & {"rpe_learned", "rpe_learned_shared"}:
        return _beit(config, names)
    if names & {"rope_axial", "rope_dinov3", "rope_mixed"}:
        return _eva(config, parts)
    if names & {"learned_2d", "factorized"} or _is_naflex_table(config, parts.get("learned_1d")):
        return _naflex(config, parts)
    return _vit(config, parts)


def _shared(config: ViTConfig, kind: str) -> dict[str, Any]:
    """The arguments of a class that are fields of ours."""
    size = config.table_size
    values = {
        **vars(config),
        "image_size": list(size) if isinstance(size, tuple) else size,
        # timm cuts the product where we round it.
        "mlp_ratio": (config.mlp_hidden + 0.5) / config.dim,
        "qkv_bias": config.qkv_bias is not False,
        # The nearest that timm has.
        "pool": next((theirs for theirs, ours in TIMM_POOLS.items() if ours == config.pool), "map"),
        "class_token": config.has_class_token,
        "fit": config.fit == "pad",
    }
    return {theirs: values[ours] for theirs, ours in arguments_of(kind).items()}


def _is_naflex_table(config: ViTConfig, options: dict[str, Any] | None) -> bool:
    """A table of patches alone that is resized by another rule than that of timm's other classes."""
    if options is None or (options.get("prefix", True) and config.num_prefix_tokens):
        return False
    return options.get("interpolation", "bilinear") != _BICUBIC


def _after_pool(config: ViTConfig) -> bool:
    return config.final_norm == "after_pool"


def _apart(options: dict[str, Any]) -> bool:
    """Prefix tokens have no embedding."""
    return not options.get("prefix", True)


def _vit(config: ViTConfig, parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": _VIT.get(config.norm_eps, _VIT[1e-6]),
        **_shared(config, "VisionTransformer"),
        "pos_embed": "learn" if "learned_1d" in parts else "none",
        "no_embed_class": _apart(parts.get("learned_1d", {})),
        "final_norm": config.final_norm != "none",
        "fc_norm": _after_pool(config),
        "act_layer": _GELUS[config.gelu],
        "norm_layer": _NORMS.get(config.norm),
        "dynamic_img_size": True,
    }


def _eva(config: ViTConfig, parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rotary = next(name for name in parts if name.startswith("rope"))
    options = parts[rotary]
    centred = rotary == "rope_dinov3" or options.get("coordinates") == "centred"
    kind = "mixed" if rotary == "rope_mixed" else "dinov3" if centred else "cat"
    preset = {"axis_order": "yx", "pairing": "halves"} if rotary == "rope_dinov3" else {}
    options = {**preset, **options}
    reference = options.get("reference") or config.train_grid
    scaled = config.layer_scale is not None
    given = {
        "model": _EVA.get((config.norm_eps, scaled), _EVA[1e-6, scaled]),
        **_shared(config, "Eva"),
        # Biases of all three, or of q and v alone.
        "attn_type": "eva" if config.qkv_bias == "qv" else "rope",
        "qkv_fused": True,
        "swiglu_mlp": config.mlp == "swiglu",
        "swiglu_align_to": 0,
        "use_abs_pos_emb": "learned_1d" in parts,
        "no_embed_class": _apart(parts.get("learned_1d", {})),
        "use_rot_pos_emb": True,
        "rope_type": kind,
        "rope_temperature": options.get("theta", 10.0 if kind == "mixed" else 100.0),
        "rope_grid_indexing": "ij" if options.get("axis_order") == "yx" else "xy",
        "rope_grid_offset": options.get("offset", 0.0),
        "rope_rotate_half": options.get("pairing") == "halves",
        "ref_feat_shape": list(reference) if options.get("coordinates") == "squeezed" else None,
        "use_post_transformer_norm": config.final_norm == "before_pool",
        "use_fc_norm": _after_pool(config),
        "dynamic_img_size": True,
    }
    if config.pool == "attention":
        given |= _probe(config)
    return given


def _probe(config: ViTConfig) -> dict[str, Any]:
    """Written out, as a name brings its own."""
    ratio = (config.pool_hidden + 0.5) / config.dim
    return {"attn_pool_num_heads": config.pool_heads or config.heads, "attn_pool_mlp_ratio": ratio}


def _beit(config: ViTConfig, names: set[str]) -> dict[str, Any]:
    return {
        "model": "beit_base_patch16_224",
        **_shared(config, "Beit"),
        "init_values": config.layer_scale or 0,
        "swiglu_mlp": config.mlp == "swiglu",
        "use_abs_pos_emb": "learned_1d" in names,
        "use_rel_pos_bias": "rpe_learned" in names,
        "use_shared_rel_pos_bias": "rpe_learned_shared" in names,
        "use_fc_norm": _after_pool(config),
    }


def _naflex(config: ViTConfig, parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    options = next(iter(parts.values()), {})
    # Factorised tables are resized along their axis, whatever the mode.
    rule = _BICUBIC if "factorized" in parts else options.get("interpolation", "bilinear")
    mode, antialias, aligned = {ours: theirs for theirs, ours in RULES.items()}[rule]
    return {
        # The first brings a LayerScale, the second none.
        "model": "naflexvit_base_patch16_siglip" if config.layer_scale is None else "naflexvit_base_patch16_gap",
        **_shared(config, "NaFlexVit"),
        "pos_embed": "factorized" if "factorized" in parts else "learned",
        "pos_embed_grid_size": list(config.train_grid),
        "pos_embed_ar_preserving": "learned_2d" in parts or options.get("new_grid") == "aspect",
        "pos_embed_interp_mode": mode,
        "pos_embed_antialias": antialias,
        "pos_embed_align_corners": aligned,
        "final_norm": config.final_norm != "none",
        "fc_norm": _after_pool(config),
        **_probe(config),
        "act_layer": _GELUS[config.gelu],
        "norm_layer": _NORMS.get(config.norm),
    }
