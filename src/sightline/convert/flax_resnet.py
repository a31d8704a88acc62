"""The names of vision_transformer's ResNet stem (`models_resnet.py`): kernels HWIO, stages and units from 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sightline.convert.base import TensorMap, transform
from sightline.convert.flax import norm
from sightline.io.config import check_value
from sightline.models import ViTConfig
from sightline.models.embedders.resnet import ResNetOptions, resnet_options


def resnet_fields(project: str, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> tuple[dict[str, Any], int]:
    """Our fields of the argument `resnet`, and the stem's stride; none and 1 where there is none.

    `group_norm_groups` is no argument there: the class always has 32.

    Raises:
        InputError: `resnet` does not say what it must.
    """
    resnet = given["resnet"]
    if resnet is None:
        return {}, 1
    check_value(f"{project}: resnet", resnet, dict[str, Any])
    layers = resnet.get("num_layers")
    check_value(f"{project}: resnet.num_layers", layers, list[int] | tuple[int, ...])
    options = {
        "layers": list(layers),
        "width_factor": resnet.get("width_factor", 1),
        "groups": given["group_norm_groups"],
        "norm_eps": 1e-6,
        "standardisation": "official",
    }
    root = state.get("conv_root/kernel")
    fields = {
        "embedder": "resnet",
        "embedder_options": options,
        "channels": 3 if root is None or root.dim() != 4 else root.shape[2],
    }
    return fields, ResNetOptions(**options).stride


def resnet_arguments(config: ViTConfig) -> tuple[dict[str, Any], int]:
    """The inverse of `resnet_fields`; `resnet` is None for another embedder."""
    if config.embedder != "resnet":
        return {"resnet": None}, 1
    options = resnet_options(config)
    given: dict[str, Any] = {"resnet": {"num_layers": list(options.layers), "width_factor": options.width_factor}}
    if options.groups != 32:
        given["group_norm_groups"] = options.groups
    return given, options.stride


def flat_norms(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Weights in which group norms have vectors, where the first files published hold them as [1, 1, 1, channels]."""
    return {
        name: tensor.flatten() if tensor.dim() == 4 and "/kernel" not in name and _of_norm(name) else tensor
        for name, tensor in state.items()
    }


def _of_norm(name: str) -> bool:
    return any(part.startswith("gn") for part in name.split("/"))


def stem(config: ViTConfig) -> list[TensorMap]:
    """The root and all units; nothing for another embedder."""
    if config.embedder != "resnet":
        return []
    ours = "patch_embed.backbone"
    entries = _layer("conv_root", "gn_root", f"{ours}.stem.conv", f"{ours}.stem.norm")
    for number, units in enumerate(resnet_options(config).layers):
        for unit in range(units):
            theirs, here = f"block{number + 1}/unit{unit + 1}", f"{ours}.stages.{number}.blocks.{unit}"
            for part in (1, 2, 3):
                entries += _layer(
                    f"{theirs}/conv{part}", f"{theirs}/gn{part}", f"{here}.conv{part}", f"{here}.norm{part}"
                )
            if not unit:
                beside = f"{here}.downsample"
                entries += _layer(f"{theirs}/conv_proj", f"{theirs}/gn_proj", f"{beside}.conv", f"{beside}.norm")
    return entries


def _layer(conv: str, gn: str, our_conv: str, our_norm: str) -> list[TensorMap]:
    weight = transform(
        f"{conv}/kernel", f"{our_conv}.weight", lambda x: x.permute(3, 2, 0, 1), lambda x: x.permute(2, 3, 1, 0)
    )
    return [weight, *norm(gn, our_norm)]
