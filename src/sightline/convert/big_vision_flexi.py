"""big_vision's FlexiViT: its plain model with a kernel and a table that every call resizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import TensorMap
from sightline.convert.big_vision import BigVision
from sightline.errors import InputError
from sightline.io.config import Count, check_value
from sightline.models import Model, ViTConfig
from sightline.models.kernel_resize import KERNEL_RULES
from sightline.models.patch_size import kernel_side
from sightline.tokens.grid import Grid


class BigVisionFlexi(BigVision):
    """The class `models.proj.flexi.vit._Model`. The kernel is resized by bilinear interpolation without antialias,
    pseudo-inverted; the table by jax.image.resize "linear", which antialiases where it shrinks.

    A call of it takes `seqhw`, the side of the grid, and cuts patches of the image's side // seqhw, each axis alone:
    here with `image_size` it says the patch size to begin with (None: that of the kernel); `set_patch_size` says
    others, oblong ones too.
    """

    name = "big_vision_flexi"
    source = "https://github.com/google-research/big_vision/tree/main/big_vision/models/proj/flexi"
    # Its sines would be resized as a table is.
    choices: ClassVar = {**BigVision.choices, "posemb": ("encoding", {"learn": "learned_1d"})}
    arguments: ClassVar = {**BigVision.arguments, "patch_size": (32, 32), "posemb_size": (7, 7), "seqhw": 0}

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        (base, tall), table = (_pair(self.name, name, given[name]) for name in ("patch_size", "posemb_size"))
        if base != tall:
            raise InputError(f"{self.name}: patch_size {given['patch_size']!r}: expected a square")
        whole = tuple(base * side for side in table)
        image = Grid.checked(whole if given["image_size"] is None else given["image_size"], "image_size")
        plain = super().import_config({**given, "image_size": whole}, state)
        patch = base
        if given["seqhw"]:
            check_value(f"{self.name}: seqhw", given["seqhw"], Count)
            tall, wide = (side // given["seqhw"] for side in image)
            if tall != wide or not tall:
                raise InputError(
                    f"{self.name}: seqhw {given['seqhw']}: patches of {tall}x{wide} pixels (expected a square image)"
                )
            patch = tall
        return plain.replace(
            embedder="flexible",
            embedder_options={"base": base, "rule": "bilinear"},
            patch_size=patch,
            image_size=image[0] if image[0] == image[1] else tuple(image),
            table_grid=table,
            encoding_options={"interpolation": "bilinear_antialias", "prefix": False},
        ).plain()

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        base = kernel_side(config)
        if config.embedder != "flexible" or base is None:
            raise InputError(f"{self.name}: cannot hold embedder = {config.embedder!r} (expected 'flexible')")
        rule = config.embedder_options.get("rule", KERNEL_RULES[0])
        if rule != "bilinear":
            raise InputError(f"{self.name}: cannot hold embedder_options.rule = {rule!r} (expected 'bilinear')")
        rows, cols = config.grid_of(config.image_size)
        given = {
            "num_classes": config.num_classes or None,
            **self.plain_arguments(config),
            "patch_size": (base, base),
            "posemb_size": tuple(config.train_grid),
            "mlp_dim": config.mlp_hidden,
            "image_size": config.image_size,
            "seqhw": rows if rows == cols else 0,
        }
        return self.check_roundtrip(given, model, {"embedding/kernel": _kernel_like(config, base)})

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        base = kernel_side(config)
        assert base is not None
        # The kernel that is learnt, and not that of the patches in use.
        return super().tensor_maps(config.replace(patch_size=base, fit="pad"), given)


def _pair(project: str, name: str, value: Any) -> tuple[int, int]:
    sides = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(sides) != 2:
        raise InputError(f"{project}: {name} {value!r}: expected two sides")
    for side in sides:
        check_value(f"{project}: {name}", side, Count)
    return sides[0], sides[1]


def _kernel_like(config: ViTConfig, base: int) -> Tensor:
    return torch.empty(base, base, config.channels, 1)
