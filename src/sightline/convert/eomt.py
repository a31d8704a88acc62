"""EoMT's models (tue-mps/eomt): a ViT of timm's whose last blocks have queries beside the patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import TensorMap, derived, kernel, map_remaining, prefixed, unbatched
from sightline.convert.dense import DenseProject, image_size, pixels, sides, trunk_fields
from sightline.errors import InputError
from sightline.models import Model, ViTConfig
from sightline.models.heads.eomt import EomtHead

_TRUNK = "encoder.backbone."
_PROBABILITIES = "attn_mask_probs"
_HAD = "ours are its trunks of timm: plain ViTs and DINOv2's"
# Names of what is not ours -> why, and what can be had.
_FOREIGN = {
    f"{_TRUNK}embeddings.": f"its trunk is transformers' (DINOv3), stored as what is added to its weights; {_HAD}",
    f"{_TRUNK}rope": f"its trunk turns by position; {_HAD}",
    "embeddings.": "these are transformers' EomtForUniversalSegmentation; expected the project's own pytorch_model.bin",
}


class Eomt(DenseProject):
    """The class `EoMT` on `models.vit.ViT`, with or without the names of its Lightning module (`network.`).

    Masked attention is on in evaluation where `masked_attn_enabled` is and `attn_mask_probs` are 1, as in the public
    code; the project evaluates with `masked_attn_enabled=False`. All weights tell is not among the arguments. Ours
    goes on where the public code runs at its training size alone: the table is resized as timm resizes it on loading.
    """

    name = "eomt"
    source = "https://github.com/tue-mps/eomt"
    arguments: ClassVar = {"img_size": None, "num_heads": None, "num_blocks": None, "masked_attn_enabled": True}
    example = ""
    aside: ClassVar = (rf"{_PROBABILITIES}$",)

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        self.refuse_names(state, _FOREIGN)
        trunk = trunk_fields(
            self.name, state, f"{_TRUNK}patch_embed.proj.weight", f"{_TRUNK}blocks", ("num_heads", given["num_heads"])
        )
        registers = sides(self.name, state, f"{_TRUNK}reg_token", 3)[1] if f"{_TRUNK}reg_token" in state else 0
        places, patch = sides(self.name, state, f"{_TRUNK}pos_embed", 3)[1], trunk["patch_size"]
        size = image_size(self.name, "img_size", given["img_size"], patch, places, 1 + registers)
        hidden = sides(self.name, state, f"{_TRUNK}blocks.0.mlp.fc1.weight", 2)[0]
        blocks, probabilities = given["num_blocks"], state.get(_PROBABILITIES)
        if blocks is None:
            blocks = 4 if probabilities is None else len(probabilities)
        masked = bool(given["masked_attn_enabled"])
        shares = set() if probabilities is None or not masked else set(probabilities.tolist())
        if not (shares <= {1.0} or shares == {0.0}):
            found = ", ".join(f"{share:g}" for share in sorted(shares))
            raise InputError(
                f"eomt: {_PROBABILITIES} of {found} mask queries by chance; set masked_attn_enabled=false, as the "
                "project evaluates"
            )
        return ViTConfig(
            **trunk,
            # DINOv2's giant: the gate and what it gates lie one below the other.
            mlp="swiglu" if hidden == 2 * round(trunk["dim"] * trunk["mlp_ratio"]) else "gelu",
            num_registers=registers,
            num_classes=sides(self.name, state, "class_head.weight", 2)[0] - 1,
            image_size=size,
            mean=_of_channels(state, "encoder.pixel_mean"),
            std=_of_channels(state, "encoder.pixel_std"),
            encoding="learned_1d",
            # DINOv2's table with registers is one of patches alone.
            encoding_options={
                "interpolation": "bicubic_antialias", "prefix": places > (size[0] // patch) * (size[1] // patch)
            },
            layer_scale=1.0 if f"{_TRUNK}blocks.0.ls1.gamma" in state else None,
            task="segmentation",
            head="eomt",
            head_options={
                "queries": sides(self.name, state, "q.weight", 2)[0], "blocks": blocks, "masked": masked,
                "masked_in_evaluation": masked and shares != {0.0},
            },
        )  # fmt: skip

    def export_arguments(self, model: Model) -> dict[str, Any]:
        head = model.head
        given = {
            "img_size": pixels(model),
            "num_heads": model.config.heads,
            "num_blocks": head.blocks if isinstance(head, EomtHead) else None,
            "masked_attn_enabled": isinstance(head, EomtHead) and head.options.masked_in_evaluation,
        }
        return self.exported(model, ("eomt",), given)

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        whole = config.encoding_options.get("prefix", True)
        table = f"{_TRUNK}pos_embed"
        special = [
            kernel(config, f"{_TRUNK}patch_embed.proj.weight"),
            prefixed(table, "encoding", config.num_prefix_tokens) if whole else unbatched(table, "encoding.table"),
        ]
        for name, values in (("mean", config.mean), ("std", config.std)):
            special.append(derived([f"encoder.pixel_{name}"], torch.tensor(values, device="cpu").reshape(1, 3, 1, 1)))
        return map_remaining(config, special, [(r"^(?!head\.)", _TRUNK), (r"^head\.", "")])


def _of_channels(state: Mapping[str, Tensor], name: str) -> tuple[float, float, float]:
    """A number for each of three channels."""
    found = sides("eomt", state, name, 4)
    if found != [1, 3, 1, 1]:
        raise InputError(f"eomt weights: {name} is {found}, expected [1, 3, 1, 1]")
    red, green, blue = state[name].flatten().tolist()
    return red, green, blue
