"""What a module that timm built is made of, in our configuration: read off the module, so that no list can be wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sightline.convert.rope_swin import swin_fields
from sightline.convert.timm_build import build
from sightline.errors import InputError
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


def class_name(module: object) -> str:
    """The name of a module's class; `Identity` for None."""
    return "Identity" if module is None else type(module).__name__


def present(module: object) -> bool:
    """Whether there is something that computes."""
    return class_name(module) != "Identity"


def reject_if(lacking: bool, reason: str) -> None:
    """Refuse a module that lacks something, or has what ours lack."""
    if lacking:
        raise InputError(f"timm: this model cannot be ours: {reason}")


def read_fields(module: Any) -> dict[str, Any]:
    """The fields of our `ViTConfig` for a timm module (which may be on the meta device).

    Raises:
        InputError: it has a part that our models lack; says which.
    """
    place = type(module).__module__
    reject_if(not place.startswith("timm."), f"{place}.{class_name(module)} is none of timm's own")
    if class_name(module) == "SwinTransformer":
        return _swin(module)
    known = (*CLASSES, "SwinTransformer")
    reject_if(class_name(module) not in known, f"it is a {class_name(module)} (expected {', '.join(known)})")
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
        **preparation(module.pretrained_cfg or {}),
        "num_classes": module.head.out_features if isinstance(module.head, nn.Linear) else 0,
    }


def _patches(module: Any) -> dict[str, Any]:
    naflex = class_name(module) == "NaFlexVit"
    embed = module.embeds if naflex else module.patch_embed
    if class_name(embed) == "HybridEmbed":
        return _hybrid(embed)
    reject_if(class_name(embed) not in ("PatchEmbed", "NaFlexEmbeds"), f"its patches come from a {class_name(embed)}")
    sides = tuple(embed.patch_size)
    reject_if(len(sides) != 2 or sides[0] != sides[1], f"patches of {'x'.join(map(str, sides))} pixels are not square")
    rows = sides[0]
    reject_if(present(embed.norm) or getattr(embed, "norm_input", None) is not None, "its patch embedding has a norm")
    # The grid, and not img_size: timm drops pixels beyond the last whole patch.
    grid = (embed.pos_embed_grid_size or (16, 16)) if naflex else embed.grid_size
    whole = naflex or tuple(embed.img_size or grid) == (grid[0] * rows, grid[1] * rows) or embed.img_size is None
    return {
        "patch_size": rows,
        "channels": embed.in_chans if naflex else embed.proj.in_channels,
        "image_size": (grid[0] * rows, grid[1] * rows),
        "patch_bias": embed.proj.bias is not None,
        # Where the patch does not divide the training size, timm's convolution passes over the last pixels.
        "fit": "pad" if embed.dynamic_img_pad else "exact" if whole else "crop",
    }


def _hybrid(embed: Any) -> dict[str, Any]:
    kind, stages = class_name(embed.backbone), getattr(embed.backbone, "stages", ())
    reject_if(
        kind not in ("ResNetV2", "Sequential"), f"its stem is a {kind} (expected a ResNetV2, as in {STEMS[3, 4, 9]})"
    )
    root = getattr(embed.backbone, "stem", embed.backbone)
    layers, channels = tuple(len(stage.blocks) for stage in stages), root.conv.in_channels
    reject_if(layers not in STEMS, f"its stem has {layers} units (expected one of {', '.join(map(str, STEMS))})")
    with torch.device("meta"):
        there: Any = build({"model": STEMS[layers], "in_chans": channels, "depth": 1}).patch_embed
    pairs = zip(repr(embed.backbone).split("\n"), repr(there.backbone).split("\n"), strict=False)
    wrong = next((f"{one.strip()} (expected {other.strip()})" for one, other in pairs if one != other), "")
    reject_if(bool(wrong), f"its stem is not that of {STEMS[layers]}: {wrong}")
    side, stride = embed.patch_size[0], 4 * 2 ** max(len(stages) - 1, 0)
    reject_if(
        embed.patch_size[1] != side or class_name(embed.proj) != "Conv2d",
        "its stem's map has no projection of square patches",
    )
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
    norm, eps = _norm(block.norm1, "norm1")
    found = {"norm": norm, "norm_eps": eps, **_attention(block.attn, module.embed_dim), **_mlp(block.mlp)}
    inner = {name: getattr(block.attn, name, None) for name in ("q_norm", "k_norm", "norm")}
    inner |= {"norm2": block.norm2, "mlp.norm": getattr(block.mlp, "norm", None)}
    for name, one in inner.items():
        alike = not present(one) or _norm(one, name) == (norm, eps)
        reject_if(not alike, f"its {name} is of another kind, or has another epsilon, than norm1")
    first, second = (block.ls1, block.ls2) if hasattr(block, "ls1") else (block.gamma_1, block.gamma_2)
    reject_if(present(first) != present(second), "only one of its branches has a LayerScale")
    # A module of its own knows what it starts from; of factors that are parameters the block does.
    holder = first if hasattr(block, "ls1") else block
    return {**found, "layer_scale": float(holder.init_values) if present(first) else None}


def _attention(attn: Any, dim: int) -> dict[str, Any]:
    reject_if(
        class_name(attn) not in ("Attention", "EvaAttention", "AttentionRope"), f"its attention is {class_name(attn)}"
    )
    reject_if(attn.proj.in_features != dim, "its heads are not as wide as dim / heads")
    reject_if(attn.proj.bias is None, "the projection of its heads has no bias")
    shared = getattr(attn, "num_kv_heads", attn.num_heads) != attn.num_heads
    gated = getattr(attn, "gate", None) is not None
    reject_if(shared or gated, "its attention is gated, or shares keys between heads")
    if getattr(attn, "qkv", None) is not None:
        biases = [attn.qkv.bias is not None] * 3 if getattr(attn, "q_bias", None) is None else [True, False, True]
    else:
        biases = [one.bias is not None for one in (attn.q_proj, attn.k_proj, attn.v_proj)]
    known: dict[tuple[bool, ...], Any] = {(True,) * 3: True, (False,) * 3: False, (True, False, True): "qv"}
    return {
        "heads": attn.num_heads,
        "qkv_bias": known[tuple(biases)],
        "qk_norm": present(getattr(attn, "q_norm", None)),
        "attn_norm": present(getattr(attn, "norm", None)),
    }


def _mlp(mlp: Any) -> dict[str, Any]:
    kind = class_name(mlp)
    gated = kind == "SwiGLU" or (kind == "GluMlp" and not mlp.gate_last)
    known = kind == "Mlp" or (gated and class_name(getattr(mlp, "act", None)) == "SiLU")
    reject_if(not known, f"its MLP is a {kind}")
    reject_if(mlp.fc2.bias is None, "its MLP has no biases")
    return {
        "mlp": "swiglu" if gated else "gelu",
        "mlp_ratio": mlp.fc2.in_features / mlp.fc2.out_features,
        "mlp_norm": present(getattr(mlp, "norm", None)),
        "gelu": "exact" if gated else _gelu(mlp.act),
    }


def _gelu(act: Any) -> str:
    """Our name for an activation."""
    kinds = {"GELU": "exact", "GELUTanh": "tanh", "QuickGELU": "quick"}
    reject_if(class_name(act) not in kinds, f"its activation is {class_name(act)}")
    return "tanh" if getattr(act, "approximate", "none") == "tanh" else kinds[class_name(act)]


def _tokens(module: Any) -> dict[str, Any]:
    holder = getattr(module, "embeds", module)
    registers = getattr(holder, "reg_token", None)
    count = 0 if registers is None else registers.shape[1]
    classes = 0 if holder.cls_token is None else holder.cls_token.shape[1]
    reject_if(classes > 1, f"it has {classes} CLS tokens")
    reject_if(module.num_prefix_tokens != classes + count, "it has prefix tokens beside a CLS token and registers")
    return {"class_token": classes == 1, "num_registers": count}


def _norms(module: Any, block: dict[str, Any]) -> dict[str, Any]:
    before, after = present(module.norm), present(module.fc_norm)
    reject_if(before and after, "it has a norm before and one after pooling")
    norm_pre = getattr(module, "norm_pre", None)
    kinds = {_norm(one, "final norm") for one in (module.norm, module.fc_norm, norm_pre) if present(one)}
    reject_if(not kinds <= {(block["norm"], block["norm_eps"])}, "its norms are of different kinds")
    final = "before_pool" if before else "after_pool" if after else "none"
    return {"final_norm": final, "norm_pre": present(norm_pre)}


def _pool(module: Any, block: dict[str, Any]) -> dict[str, Any]:
    theirs = module.global_pool
    reject_if(theirs not in TIMM_POOLS, f"its pooling is {theirs!r} (expected {', '.join(TIMM_POOLS)})")
    pool = TIMM_POOLS[theirs]
    found: dict[str, Any] = {"pool": pool}
    eva = class_name(module) == "Eva"
    if pool != "cls" and module.num_prefix_tokens:
        found["pool_prefix"] = (eva and pool == "attention") or bool(getattr(module, "pool_include_prefix", False))
    if pool == "attention":
        probe: Any = module.attn_pool
        plain = probe.latent_len == 1 and probe.pos_embed is None and present(probe.mlp) and present(probe.q)
        plain = plain and not present(probe.q_norm) and probe.pool == "token" and probe.latent_dim == module.embed_dim
        reject_if(not plain, "its attention pooling is not one probe with a projection and an MLP")
        norm, eps = _norm(probe.norm, "probe's norm")
        alike = {**block, "norm": norm, "norm_eps": eps, "gelu": _gelu(probe.mlp.act)} == block
        reject_if(not alike, "its attention pooling has another norm or activation than its blocks")
        heads, ratio = probe.num_heads, probe.mlp.fc1.out_features / module.embed_dim
        found["pool_heads"] = None if heads == block["heads"] else heads
        found["pool_mlp_ratio"] = None if ratio == block["mlp_ratio"] else ratio
    return found


def _encoding(module: Any) -> dict[str, Any]:
    parts = [part for part in (_rotation(module), _added(module), _relative(module)) if part is not None]
    if not parts:
        return {"encoding": "none"}
    options = {
        f"{name}.{key}" if len(parts) > 1 else key: value for name, given in parts for key, value in given.items()
    }
    return {"encoding": "+".join(name for name, _ in parts), "encoding_options": options}


def _rotation(module: Any) -> tuple[str, dict[str, Any]] | None:
    rope: Any = getattr(module, "rope", None)
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
    interpolation = RULES[rule]
    if not aspect:
        return "learned_1d", {"interpolation": interpolation, "prefix": False}
    rows, cols = embed.pos_embed_grid_size
    reject_if(rows != cols, "its embedding keeps the aspect ratio and is not square")
    return "learned_2d", {"lookup": "aspect", "interpolation": interpolation}


def _relative(module: Any) -> tuple[str, dict[str, Any]] | None:
    if class_name(module) != "Beit":
        return None
    own = module.blocks[0].attn.relative_position_bias_table is not None
    reject_if(own and module.rel_pos_bias is not None, "it has relative tables for each layer and one for all")
    return ("rpe_learned", {}) if own else ("rpe_learned_shared", {}) if module.rel_pos_bias is not None else None


def preparation(cfg: dict[str, Any]) -> dict[str, Any]:
    """How its images are prepared; what ours cannot say keeps our default."""
    found: dict[str, Any] = {
        key: tuple(map(float, cfg[key])) for key in ("mean", "std") if len(cfg.get(key) or ()) == 3
    }
    if 0 < (cfg.get("crop_pct") or 0) <= 1:
        found["crop"] = float(cfg["crop_pct"])
    ours = {"interpolation": ("bicubic", "bilinear", "lanczos"), "crop_mode": ("squash", "border")}
    return found | {key: cfg[key] for key, known in ours.items() if cfg.get(key) in known}


def _swin(module: Any) -> dict[str, Any]:
    embed, depths = module.patch_embed, [len(layer.blocks) for layer in module.layers]
    firsts = [layer.blocks[0] for layer in module.layers]
    heads = [block.attn.num_heads for block in firsts]
    sides = tuple(embed.patch_size)
    reject_if(sides[0] != sides[1], f"patches of {'x'.join(map(str, sides))} pixels are not square")
    reject_if(not present(embed.norm), "its patch embedding has no norm")
    reject_if(
        class_name(firsts[0].mlp) != "Mlp" or class_name(firsts[0].mlp.act) != "GELU", "its MLPs are of another kind"
    )
    windows = {tuple(one) for one in module._ref_window_sizes}
    reject_if(len(windows) != 1, "its stages have windows of different sizes")
    reject_if(any(block.always_partition for block in firsts), "its windows are not fitted to a smaller image")
    norms = [one for one in module.modules() if isinstance(one, nn.LayerNorm)]
    reject_if({one.eps for one in norms} != {1e-5}, "its norms have another epsilon than 1e-5, or are of another kind")
    reject_if(module.global_pool != "avg", f"its pooling is {module.global_pool!r} (expected avg)")
    widths = [block.attn.qkv.in_features for block in firsts]
    reject_if(widths != [widths[0] * 2**stage for stage in range(len(widths))], "its stages do not double in width")
    wide = any(block.attn.proj.in_features != width for block, width in zip(firsts, widths, strict=True))
    reject_if(wide, "its heads are not as wide as dim / heads")
    fc = module.head.fc
    return {
        **swin_fields(depths, heads),
        "dim": widths[0],
        "patch_size": sides[0],
        "channels": embed.proj.in_channels,
        "image_size": tuple(embed.img_size),
        "mlp_ratio": firsts[0].mlp.fc1.out_features / widths[0],
        "qkv_bias": firsts[0].attn.qkv.bias is not None,
        "encoding": "rpe_learned",
        "architecture_options": {"depths": depths, "heads": heads, "window": list(windows.pop()), "edges": "padded"},
        "num_classes": fc.out_features if isinstance(fc, nn.Linear) else 0,
        **preparation(module.pretrained_cfg or {}),
    }
