"""timm's Swin: what a module is made of, which tensors are ours, and the arguments that build one of ours."""

from __future__ import annotations

from typing import Any

from torch import nn

from sightline.convert.base import TensorMap
from sightline.convert.swin_names import swin_entries, swin_fields
from sightline.convert.timm_read import class_name, preparation, present, reject_if
from sightline.models import Model, ViTConfig
from sightline.models.architectures.swin import SwinOptions


def read_swin(module: Any) -> dict[str, Any]:
    """The fields of our `ViTConfig` for timm's Swin (which may be on the meta device).

    Raises:
        InputError: it has a part that our models lack; says which.
    """
    embed, layers = module.patch_embed, list(module.layers)
    depths = [len(layer.blocks) for layer in layers]
    firsts = [layer.blocks[0] for layer in layers]
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
    hidden = firsts[0].mlp.fc1.out_features
    return {
        **swin_fields(depths, heads, widths[0]),
        "patch_size": sides[0],
        "channels": embed.proj.in_channels,
        "image_size": tuple(embed.img_size),
        "mlp_ratio": hidden / widths[0],
        "qkv_bias": firsts[0].attn.qkv.bias is not None,
        "encoding": "rpe_learned",
        "architecture_options": {
            "depths": depths,
            "heads": heads,
            "window": list(windows.pop()),
            "edges": "padded",
        },
        "num_classes": fc.out_features if isinstance(fc, nn.Linear) else 0,
        **preparation(module.pretrained_cfg or {}),
    }


def swin_tensors(config: ViTConfig) -> list[TensorMap]:
    """Every tensor of the state dict."""
    return swin_entries(config, merging=lambda stage: f"layers.{stage}.downsample", head="head.fc")


def swin_arguments(model: Model) -> dict[str, Any]:
    """`model` and the arguments of timm's `create_model` that come nearest to a Swin of ours."""
    config, options = model.config, SwinOptions.of(model.config)
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
