"""timm's hybrids: what a `HybridEmbed` over a ResNet with standardised SAME convolutions is of ours."""

from __future__ import annotations

from typing import Any

from sightline.errors import InputError
from sightline.models import ViTConfig
from sightline.models.embedders.resnet import resnet_options, stem_fit

# Layers -> a name of timm's whose stem has them.
_STEMS = {
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (): "vit_tiny_r_s16_p8_224",
}
_EPSILON = 1e-8


def hybrid_fields(embed: Any) -> dict[str, Any]:
    """The fields of images and of the stem.

    Raises:
        InputError: its stem is another network, as the convolutions with batch norm of MobileCLIP's (`ConvStem`).
    """
    backbone, kind = embed.backbone, type(embed.backbone).__name__
    alone = kind == "Sequential" and [name for name, _ in backbone.named_children()] == ["conv", "norm", "pool"]
    if kind != "ResNetV2" and not alone:
        raise _refusal(f"its stem is a {kind} (expected a ResNetV2, as in vit_base_r50_s16_224)")
    root, stages = (backbone, []) if alone else (backbone.stem, list(backbone.stages))
    if not alone and ([*dict(root.named_children())] != ["conv", "norm", "pool"] or _there(backbone.norm)):
        raise _refusal("its stem's norms stand before its convolutions, or its root is of several convolutions")
    if type(root.pool).__name__ != "MaxPool2dSame":
        raise _refusal(f"its stem's pooling is a {type(root.pool).__name__} (expected SAME padding)")
    width, norms = root.conv.out_channels, [_norm(root.norm, relu=True)]
    _conv(root.conv, root.conv.in_channels, width, 7, 2)
    inputs = width
    for number, stage in enumerate(stages):
        middle = width * 2**number
        for unit, block in enumerate(stage.blocks):
            norms += _unit(block, inputs, middle, 2 if number and not unit else 1, first=not unit)
            inputs = 4 * middle
    if len(set(norms)) > 1:
        raise _refusal("its stem's norms have different groups or epsilons")
    ((groups, eps),) = set(norms)
    rows, cols = embed.patch_size
    if rows != cols or not hasattr(embed.proj, "kernel_size"):
        raise _refusal("its stem's map has no projection of square patches")
    stride = 4 * 2 ** max(len(stages) - 1, 0)
    return {
        "patch_size": rows * stride,
        "channels": root.conv.in_channels,
        "image_size": tuple(embed.img_size),
        "patch_bias": embed.proj.bias is not None,
        "fit": "pad" if embed.dynamic_img_pad else stem_fit(embed.img_size, rows * stride, stride),
        "embedder": "resnet",
        "embedder_options": {
            "layers": [len(stage.blocks) for stage in stages],
            "width_factor": width / 64,
            "groups": groups,
            "norm_eps": eps,
            "standardisation": "timm",
        },
    }


def hybrid_arguments(config: ViTConfig) -> dict[str, Any]:
    """The name whose stem has these layers, or the first one where there is none, and its patch in cells."""
    options = resnet_options(config)
    return {
        "model": _STEMS.get(options.layers, _STEMS[3, 4, 9]),
        "patch_size": config.patch_size // options.stride,
    }


def _unit(block: Any, inputs: int, middle: int, stride: int, *, first: bool) -> list[tuple[int, float]]:
    """(groups, epsilon) of each norm of a bottleneck that ours has as well."""
    if type(block).__name__ != "Bottleneck":
        raise _refusal(f"its stem's units are {type(block).__name__} (expected Bottleneck)")
    _conv(block.conv1, inputs, middle, 1, 1)
    _conv(block.conv2, middle, middle, 3, stride)
    _conv(block.conv3, middle, 4 * middle, 1, 1)
    found = [_norm(block.norm1, relu=True), _norm(block.norm2, relu=True), _norm(block.norm3, relu=False)]
    if (block.downsample is not None) != first or _there(block.drop_path):
        raise _refusal("its stem's units have other shortcuts, or drop their branches")
    if first:
        if type(block.downsample).__name__ != "DownsampleConv":
            raise _refusal(f"its stem's shortcuts are {type(block.downsample).__name__} (expected DownsampleConv)")
        _conv(block.downsample.conv, inputs, 4 * middle, 1, stride)
        found.append(_norm(block.downsample.norm, relu=False))
    return found


def _conv(conv: Any, inputs: int, outputs: int, kernel: int, stride: int) -> None:
    kind = type(conv).__name__
    if kind != "StdConv2dSame":
        raise _refusal(f"its stem's convolutions are {kind} (expected StdConv2dSame, padded by the size of the image)")
    found = (conv.in_channels, conv.out_channels, *conv.kernel_size, *conv.stride, *conv.dilation, conv.groups)
    if found != (inputs, outputs, kernel, kernel, stride, stride, 1, 1, 1) or conv.bias is not None:
        raise _refusal("a convolution of its stem has another shape than ResNet-50's, or a bias")
    if conv.eps != _EPSILON:
        raise _refusal(f"its stem's weights are standardised with an epsilon of {conv.eps:g} (expected {_EPSILON:g})")


def _norm(norm: Any, *, relu: bool) -> tuple[int, float]:
    act = type(getattr(norm, "act", None)).__name__
    if type(norm).__name__ != "GroupNormAct" or act != ("ReLU" if relu else "Identity"):
        raise _refusal(f"its stem's norms are {type(norm).__name__} with {act} (expected GroupNormAct with ReLU)")
    return norm.num_groups, norm.eps


def _there(module: Any) -> bool:
    return module is not None and type(module).__name__ != "Identity"


def _refusal(reason: str) -> InputError:
    return InputError(f"timm: this model cannot be ours: {reason}")
