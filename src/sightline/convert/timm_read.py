"""What a module that timm built is made of, in our configuration: read off the module, so that no list can be wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sightline.convert.timm_build import build
from sightline.errors import InputError
from sightline.models.create import swin_fields
from sightline.models.embedders.resnet import stem_fit
from sightline.models.timm_names import CLASSES, TIMM_POOLS

_BLOCKS = {
    "VisionTransformer": ("Block",), "Eva": ("EvaBlock",), "Beit": ("Block",), "NaFlexVit": ("Block", "EvaBlock"),
}  # fmt: skip
# (mode, antialias, align_corners) of NaFlexViT's learned tables -> our rule.
RULES = {
    ("bicubic", True, False): "bicubic_antialias",
    ("bicubic", False, False): "bicubic",
    ("bilinear", True, False): "bilinear_antialias",
    ("bilinear", False, False): "bilinear",
    ("bilinear", False, True): "corner_aligned",
}
# Layers of a hybrid's stem -> a name of timm's whose stem has them.
STEMS = {
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (): "vit_tiny_r_s16_p8_224",
}
_GELUS = {"GELU": "exact", "GELUTanh": "tanh", "QuickGELU": "quick"}


def class_name(module: object) -> str:
    """The name of a module's class; `Identity` for None."""
    return "Identity" if module is None else type(module).__name__


def present(module: object) -> bool:
    """Whether there is something that computes."""
    return class_name(module) != "Identity"


def part(module: Any, name: str) -> Any:
    """A part of a module, or None."""
    return getattr(module, name, None)


def reject_if(lacking: bool, reason: str) -> None:
    """Refuse a module that lacks something, or has what ours lack."""
    if lacking:
        raise InputError(f"timm: this model cannot be ours: {reason}")


def read_fields(module: Any) -> dict[str, Any]:
    """The fields of our `ViTConfig` for a timm module (which may be on the meta device).

    Raises:
        InputError: it has a part that our models lack; says which.
    """
    place, kind = type(module).__module__, class_name(module)
    reject_if(not place.startswith("timm."), f"{place}.{kind} is none of timm's own")
    if kind == "SwinTransformer":
        return {**_swin(module), **_preparation(module)}
    reject_if(kind not in CLASSES, f"it is a {kind} (expected {', '.join(CLASSES)}, SwinTransformer)")
    reject_if(not len(module.blocks), "it has no blocks")
    blocks = [_block(module, block) for block in module.blocks]
    reject_if(any(block != blocks[0] for block in blocks), "its blocks differ from one another")
    return {
        **_patches(module),
        **blocks[0],
        "depth": len(blocks),
        "dim": module.embed_dim,
        **_tokens(module),
        **_norms(module, blocks[0]),
        **_pool(module, blocks[0]),
        **_encoding(module),
        **_preparation(module),
        "num_classes": _classes(module.head),
    }


def _classes(head: Any) -> int:
    return head.out_features if isinstance(head, nn.Linear) else 0


def _square(sides: Any) -> int:
    side, *rest = sides
    reject_if(rest != [side], f"patches of {'x'.join(map(str, sides))} pixels are not square")
    return side


def _patches(module: Any) -> dict[str, Any]:
    naflex = class_name(module) == "NaFlexVit"
    embed = module.embeds if naflex else module.patch_embed
    if class_name(embed) == "HybridEmbed":
        return _hybrid(embed)
    reject_if(class_name(embed) not in ("PatchEmbed", "NaFlexEmbeds"), f"its patches come from a {class_name(embed)}")
    side = _square(embed.patch_size)
    reject_if(present(embed.norm) or part(embed, "norm_input") is not None, "its patch embedding has a norm")
    # The grid, and not img_size: timm drops pixels beyond the last whole patch.
    rows, cols = (embed.pos_embed_grid_size or (16, 16)) if naflex else embed.grid_size
    size = rows * side, cols * side
    whole = naflex or tuple(embed.img_size or size) == size
    return {
        "patch_size": side,
        "channels": embed.in_chans if naflex else embed.proj.in_channels,
        "image_size": size,
        "patch_bias": embed.proj.bias is not None,
        # Where the patch does not divide the training size, timm's convolution passes over the last pixels.
        "fit": "pad" if embed.dynamic_img_pad else "exact" if whole else "crop",
    }


def _hybrid(embed: Any) -> dict[str, Any]:
    stem = embed.backbone
    kind, stages, root = class_name(stem), getattr(stem, "stages", ()), getattr(stem, "stem", stem)
    reject_if(
        kind not in ("ResNetV2", "Sequential"), f"its stem is a {kind} (expected a ResNetV2, as in {STEMS[3, 4, 9]})"
    )
    layers, channels = tuple(len(stage.blocks) for stage in stages), root.conv.in_channels
    reject_if(layers not in STEMS, f"its stem has {layers} units (expected one of {', '.join(map(str, STEMS))})")
    with torch.device("meta"):
        there: Any = build({"model": STEMS[layers], "in_chans": channels, "depth": 1}).patch_embed
    pairs = zip(repr(stem).split("\n"), repr(there.backbone).split("\n"), strict=False)
    wrong = next((f"{one.strip()} (expected {other.strip()})" for one, other in pairs if one != other), "")
    reject_if(bool(wrong), f"its stem is not that of {STEMS[layers]}: {wrong}")
    side, stride = embed.patch_size[0], 4 * 2 ** max(len(stages) - 1, 0)
    plain = embed.patch_size[1] == side and class_name(embed.proj) == "Conv2d"
    reject_if(not plain, "its stem's map has no projection of square patches")
    return {
        "patch_size": side * stride,
        "channels": channels,
        "image_size": tuple(embed.img_size),
        "patch_bias": embed.proj.bias is not None,
        "fit": "pad" if embed.dynamic_img_pad else stem_fit(embed.img_size, side * stride, stride),
        "embedder": "resnet",
        "embedder_options": {
            "layers": list(layers),
            "width_factor": root.conv.out_channels / 64,
            "groups": root.norm.num_groups,
            "norm_eps": root.norm.eps,
            "standardisation": "timm",
        },
    }


def _norm(module: Any, what: str) -> tuple[str, float]:
    """(kind, epsilon) of a norm."""
    # A norm of maps is a subclass there.
    if isinstance(module, nn.LayerNorm) and "2d" not in class_name(module):
        reject_if(module.weight is None or module.bias is None, f"its {what} has no weight or no bias")
        return "layer", module.eps
    reject_if(class_name(module) not in ("RmsNorm", "RMSNorm"), f"its {what} is a {class_name(module)}")
    return "rms", module.eps


def _block(module: Any, block: Any) -> dict[str, Any]:
    reject_if(class_name(block) not in _BLOCKS[class_name(module)], f"its blocks are {class_name(block)}")
    attn, mlp = block.attn, block.mlp
    norm = _norm(block.norm1, "norm1")
    found = {"norm": norm[0], "norm_eps": norm[1], **_attention(attn, module.embed_dim), **_mlp(mlp)}
    inner = {name: part(attn, name) for name in ("q_norm", "k_norm", "norm")}
    for name, one in {**inner, "norm2": block.norm2, "mlp.norm": part(mlp, "norm")}.items():
        alike = not present(one) or _norm(one, name) == norm
        reject_if(not alike, f"its {name} is of another kind, or has another epsilon, than norm1")
    first, second = (block.ls1, block.ls2) if hasattr(block, "ls1") else (block.gamma_1, block.gamma_2)
    reject_if(present(first) != present(second), "only one of its branches has a LayerScale")
    # A module of its own knows what it starts from; of factors that are parameters the block does.
    holder = first if hasattr(block, "ls1") else block
    return {**found, "layer_scale": float(holder.init_values) if present(first) else None}


def _attention(attn: Any, dim: int) -> dict[str, Any]:
    kind = class_name(attn)
    reject_if(kind not in ("Attention", "EvaAttention", "AttentionRope"), f"its attention is {kind}")
    reject_if(attn.proj.in_features != dim, "its heads are not as wide as dim / heads")
    reject_if(attn.proj.bias is None, "the projection of its heads has no bias")
    shared = getattr(attn, "num_kv_heads", attn.num_heads) != attn.num_heads
    reject_if(shared or part(attn, "gate") is not None, "its attention is gated, or shares keys between heads")
    if (qkv := part(attn, "qkv")) is not None:
        biases = (qkv.bias is not None,) * 3 if part(attn, "q_bias") is None else (True, False, True)
    else:
        biases = tuple(one.bias is not None for one in (attn.q_proj, attn.k_proj, attn.v_proj))
    known: dict[tuple[bool, ...], Any] = {(True,) * 3: True, (False,) * 3: False, (True, False, True): "qv"}
    return {
        "heads": attn.num_heads,
        "qkv_bias": known[biases],
        "qk_norm": present(part(attn, "q_norm")),
        "attn_norm": present(part(attn, "norm")),
    }


def _mlp(mlp: Any) -> dict[str, Any]:
    kind = class_name(mlp)
    gated = kind == "SwiGLU" or (kind == "GluMlp" and not mlp.gate_last)
    known = kind == "Mlp" or (gated and class_name(part(mlp, "act")) == "SiLU")
    reject_if(not known, f"its MLP is a {kind}")
    reject_if(mlp.fc2.bias is None, "its MLP has no biases")
    return {
        "mlp": "swiglu" if gated else "gelu",
        "mlp_ratio": mlp.fc2.in_features / mlp.fc2.out_features,
        "mlp_norm": present(part(mlp, "norm")),
        "gelu": "exact" if gated else _gelu(mlp.act),
    }


def _gelu(act: Any) -> str:
    reject_if(class_name(act) not in _GELUS, f"its activation is {class_name(act)}")
    return "tanh" if getattr(act, "approximate", "none") == "tanh" else _GELUS[class_name(act)]


def _tokens(module: Any) -> dict[str, Any]:
    holder = getattr(module, "embeds", module)
    classes, registers = (
        0 if tokens is None else tokens.shape[1] for tokens in (holder.cls_token, part(holder, "reg_token"))
    )
    reject_if(classes > 1, f"it has {classes} CLS tokens")
    reject_if(module.num_prefix_tokens != classes + registers, "it has prefix tokens beside a CLS token and registers")
    return {"class_token": classes == 1, "num_registers": registers}


def _norms(module: Any, block: dict[str, Any]) -> dict[str, Any]:
    before, after = present(module.norm), present(module.fc_norm)
    reject_if(before and after, "it has a norm before and one after pooling")
    norm_pre = part(module, "norm_pre")
    kinds = {_norm(one, "final norm") for one in (module.norm, module.fc_norm, norm_pre) if present(one)}
    reject_if(not kinds <= {(block["norm"], block["norm_eps"])}, "its norms are of different kinds")
    final = "before_pool" if before else "after_pool" if after else "none"
    return {"final_norm": final, "norm_pre": present(norm_pre)}


def _pool(module: Any, block: dict[str, Any]) -> dict[str, Any]:
    theirs = module.global_pool
    reject_if(theirs not in TIMM_POOLS, f"its pooling is {theirs!r} (expected {', '.join(TIMM_POOLS)})")
    found: dict[str, Any] = {"pool": TIMM_POOLS[theirs]}
    if theirs != "token" and module.num_prefix_tokens:
        all_of_them = class_name(module) == "Eva" and theirs == "map"
        found["pool_prefix"] = all_of_them or bool(part(module, "pool_include_prefix"))
    if theirs == "map":
        probe: Any = module.attn_pool
        plain = probe.latent_len == 1 and probe.pos_embed is None and present(probe.mlp) and present(probe.q)
        plain = plain and not present(probe.q_norm) and probe.pool == "token" and probe.latent_dim == module.embed_dim
        reject_if(not plain, "its attention pooling is not one probe with a projection and an MLP")
        alike = {**block, "gelu": _gelu(probe.mlp.act)} == block
        alike = alike and _norm(probe.norm, "probe's norm") == (block["norm"], block["norm_eps"])
        reject_if(not alike, "its attention pooling has another norm or activation than its blocks")
        heads, ratio = probe.num_heads, probe.mlp.fc1.out_features / module.embed_dim
        found["pool_heads"] = None if heads == block["heads"] else heads
        found["pool_mlp_ratio"] = None if ratio == block["mlp_ratio"] else ratio
    return found


def _encoding(module: Any) -> dict[str, Any]:
    parts = [found for found in (_rotation(module), _added(module), _relative(module)) if found is not None]
    if len(parts) < 2:
        name, options = parts[0] if parts else ("none", {})
        return {"encoding": name, "encoding_options": options}
    options = {f"{name}.{key}": value for name, given in parts for key, value in given.items()}
    return {"encoding": "+".join(name for name, _ in parts), "encoding_options": options}


def _rotation(module: Any) -> tuple[str, dict[str, Any]] | None:
    rope: Any = part(module, "rope")
    kind = class_name(rope)
    if not present(rope):
        return None
    if kind == "RotaryEmbeddingMixed":
        return "rope_mixed", {"theta": float(rope.temperature)}
    reject_if(kind not in ("RotaryEmbeddingCat", "RotaryEmbeddingDinoV3"), f"its rotation is a {kind}")
    options: dict[str, Any] = {
        "theta": float(rope.temperature),
        "axis_order": "xy" if rope.grid_indexing == "xy" else "yx",
        "offset": float(rope.grid_offset),
        "pairing": "halves" if rope.rotate_half else "adjacent",
    }
    if kind == "RotaryEmbeddingDinoV3":
        foreign = rope.normalize_coords != "separate" or rope.min_period is not None
        reject_if(foreign, "its rotation has periods or coordinates of another kind than DINOv3's own")
        return "rope_dinov3", {**options, "coordinates": "centred"}
    reject_if(rope.in_pixels, "its rotation counts pixels")
    if rope.ref_feat_shape is not None:
        options |= {"coordinates": "squeezed", "reference": tuple(rope.ref_feat_shape)}
    return "rope_axial", options


def _added(module: Any) -> tuple[str, dict[str, Any]] | None:
    if class_name(module) != "NaFlexVit":
        if module.pos_embed is None:
            return None
        apart = getattr(module, "no_embed_class", False) or not module.num_prefix_tokens
        # All of its other classes resize a table in this way.
        return "learned_1d", {"interpolation": "bicubic_antialias", "prefix": not apart}
    embed = module.embeds
    if embed.pos_embed_type == "none":
        return None
    rule = (embed.pos_embed_interp_mode, embed.pos_embed_antialias, embed.pos_embed_align_corners)
    mode = f"{rule[0]}, {'' if rule[1] else 'no '}antialias, {'' if rule[2] else 'no '}aligned corners"
    known = rule in RULES and not embed.pos_embed_use_grid_sample
    reject_if(not known, f"its embedding is interpolated in another way than ours are ({mode})")
    aspect = embed.pos_embed_ar_preserving
    if embed.pos_embed_type == "factorized":
        return "factorized", {"new_grid": "aspect" if aspect else "resize"}
    if not aspect:
        return "learned_1d", {"interpolation": RULES[rule], "prefix": False}
    rows, cols = embed.pos_embed_grid_size
    reject_if(rows != cols, "its embedding keeps the aspect ratio and is not square")
    return "learned_2d", {"lookup": "aspect", "interpolation": RULES[rule]}


def _relative(module: Any) -> tuple[str, dict[str, Any]] | None:
    if class_name(module) != "Beit":
        return None
    own, shared = module.blocks[0].attn.relative_position_bias_table is not None, module.rel_pos_bias is not None
    reject_if(own and shared, "it has relative tables for each layer and one for all")
    return ("rpe_learned", {}) if own else ("rpe_learned_shared", {}) if shared else None


def _preparation(module: Any) -> dict[str, Any]:
    """How its images are prepared; what ours cannot say keeps our default."""
    cfg = module.pretrained_cfg or {}
    found: dict[str, Any] = {
        key: tuple(map(float, cfg[key])) for key in ("mean", "std") if len(cfg.get(key) or ()) == 3
    }
    if 0 < (cfg.get("crop_pct") or 0) <= 1:
        found["crop"] = float(cfg["crop_pct"])
    ours = {"interpolation": ("bicubic", "bilinear", "lanczos"), "crop_mode": ("squash", "border")}
    return found | {key: cfg[key] for key, known in ours.items() if cfg.get(key) in known}


def _swin(module: Any) -> dict[str, Any]:
    embed, firsts = module.patch_embed, [layer.blocks[0] for layer in module.layers]
    first, windows = firsts[0], {tuple(one) for one in module._ref_window_sizes}
    norms = [one for one in module.modules() if isinstance(one, nn.LayerNorm)]
    dim, side = first.attn.qkv.in_features, _square(embed.patch_size)
    reject_if(not present(embed.norm), "its patch embedding has no norm")
    plain = class_name(first.mlp) == "Mlp" and class_name(first.mlp.act) == "GELU"
    reject_if(not plain, "its MLPs are of another kind")
    reject_if(len(windows) != 1, "its stages have windows of different sizes")
    reject_if(any(block.always_partition for block in firsts), "its windows are not fitted to a smaller image")
    reject_if({one.eps for one in norms} != {1e-5}, "its norms have another epsilon than 1e-5, or are of another kind")
    reject_if(module.global_pool != "avg", f"its pooling is {module.global_pool!r} (expected avg)")
    widths = [(block.attn.qkv.in_features, block.attn.proj.in_features) for block in firsts]
    doubled = [(dim * 2**stage,) * 2 for stage in range(len(firsts))]
    reject_if(widths != doubled, "its stages do not double in width, or its heads are not as wide as dim / heads")
    depths, heads = [len(layer.blocks) for layer in module.layers], [block.attn.num_heads for block in firsts]
    return {
        **swin_fields(depths, heads, list(windows.pop()), edges="padded"),
        "dim": dim,
        "patch_size": side,
        "channels": embed.proj.in_channels,
        "image_size": tuple(embed.img_size),
        "mlp_ratio": first.mlp.fc1.out_features / dim,
        "qkv_bias": first.attn.qkv.bias is not None,
        "num_classes": _classes(module.head.fc),
    }
