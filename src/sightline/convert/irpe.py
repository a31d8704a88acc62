"""Cream's DeiT with iRPE (microsoft/Cream, iRPE/DeiT-with-iRPE): an added embedding, and tables of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from sightline.convert.base import TensorMap, concat, kernel, map_remaining, prefixed
from sightline.convert.vit_names import DEFAULTS, VitNames
from sightline.encodings.create import components
from sightline.encodings.pattern.irpe import Irpe
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig

METHODS = {"product": "product", "cross": "cross", "euc": "euclidean", "quant": "quantised"}
"""The names of methods there, and ours."""
MODES = {"ctx": "contextual", "contextual": "contextual", "bias": "bias"}
# Its order of the letters is anybody's.
_ON = "qkv"


class CreamIrpe(VitNames):
    """The class `rpe_vision_transformer.VisionTransformer` with `rpe_config = get_rpe_config(...)`, whose arguments are
    among these by their own names; `skip` is 1, the CLS token's.

    The public code takes the square root of the number of tokens for the sides of every grid; ours knows the grid, and
    gives another answer where that is not square.
    """

    name = "irpe"
    source = "https://github.com/microsoft/Cream"
    arguments: ClassVar = {
        **DEFAULTS,
        "ratio": 1.9,
        "method": "product",
        "mode": "ctx",
        "shared_head": True,
        "rpe_on": "k",
        "skip": 1,
    }
    only: ClassVar = ("skip",)
    example: ClassVar = "rpe_on=qkv"

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        require_known("irpe: method", given["method"], METHODS)
        require_known("irpe: mode", given["mode"], MODES)
        on = "".join(sorted(given["rpe_on"], key=(_ON + given["rpe_on"]).index))
        if not on or any(letter not in _ON for letter in on) or len(set(on)) < len(on):
            raise InputError(f"irpe: rpe_on {given['rpe_on']!r}: expected some of the letters q, k and v")
        options = {
            "irpe.method": METHODS[given["method"]],
            "irpe.mode": MODES[given["mode"]],
            "irpe.on": on,
            "irpe.shared_heads": bool(given["shared_head"]),
            "irpe.ratio": float(given["ratio"]),
            "learned_1d.interpolation": "bicubic",
            "learned_1d.prefix": True,
        }
        return ViTConfig(**self.plain_fields(given), encoding="learned_1d+irpe", encoding_options=options)

    def export_arguments(self, model: Model) -> dict[str, Any]:
        given = self.plain_arguments(model.config)
        for part in components(model.encoding):
            if isinstance(part, Irpe):
                config = part.config
                given |= {
                    "ratio": float(config.ratio),
                    "method": next(theirs for theirs, ours in METHODS.items() if ours == config.method),
                    "mode": next(theirs for theirs, ours in MODES.items() if ours == config.mode),
                    "shared_head": config.shared_heads,
                    "rpe_on": config.on,
                    "skip": 1,
                }
        return self.check_roundtrip(given, model)

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        options = self.import_config(given, {}).encoding_options
        kind = "bias" if options["irpe.mode"] == "bias" else "weight"
        parts = {"rows": "rp_rows.", "cols": "rp_cols."} if options["irpe.method"] == "cross" else {"table": ""}
        tables = [
            concat(
                [f"blocks.{layer}.attn.rpe_{where}.{inner}lookup_table_{kind}" for layer in range(config.depth)],
                f"encoding.parts.1.{where}_{part}",
                lambda x: x.unsqueeze(0),
                lambda x: x.squeeze(0),
            )
            for where in options["irpe.on"]
            for part, inner in parts.items()
        ]
        return map_remaining(config, [kernel(config), prefixed("pos_embed", "encoding.parts.0"), *tables])
