"""Segmenter's models (rstrudel/segmenter): a ViT, and a linear decoder or the mask transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from sightline.convert.base import TensorMap, copy, kernel, map_remaining, prefixed, transform, unbatched
from sightline.convert.dense import DenseProject, heads_of, image_size, pixels, sides, trunk_fields
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig
from sightline.models.heads.linear_map import LinearMapHead
from sightline.models.heads.segmenter import SegmenterHead

# Mean and std by what its data sets call them.
_NORMALISED = {
    "vit": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "deit": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class Segmenter(DenseProject):
    """What `create_segmenter` builds: ViT's trunk, or that of the distilled DeiT (whose second token is a register
    here), and either decoder. LayerNorm eps 1e-5, exact GELU, a table resized bilinearly, images padded to whole
    patches. The arguments are those of `net_kwargs` in its `variant.yml`; what weights tell is not among them.

    The table is resized wherever the grid is another; the public code does so only where the number of patches is.
    """

    name = "segmenter"
    source = "https://github.com/rstrudel/segmenter"
    arguments: ClassVar = {"image_size": None, "n_heads": None, "normalization": None, "decoder": {}}
    example = "normalization=vit"
    inside = "net_kwargs"
    # ImageNet's classifier, which the decoder replaces.
    aside: ClassVar = (r"encoder\.head(_dist)?\.",)

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        require_known("segmenter: normalization", given["normalization"], _NORMALISED)
        mean, std = _NORMALISED[given["normalization"]]
        trunk = trunk_fields(
            self.name, state, "encoder.patch_embed.proj.weight", "encoder.blocks", ("n_heads", given["n_heads"])
        )
        prefix = 1 + ("encoder.dist_token" in state)
        places = sides(self.name, state, "encoder.pos_embed", 3)[1]
        size = image_size(self.name, "image_size", given["image_size"], trunk["patch_size"], places - prefix, 0)
        fields = {**trunk, "image_size": size, "num_registers": prefix - 1, "mean": mean, "std": std}
        if "decoder.cls_emb" in state:
            _, fields["num_classes"], dim = sides(self.name, state, "decoder.cls_emb", 3)
            hidden = sides(self.name, state, "decoder.blocks.0.mlp.fc1.weight", 2)[0]
            numbers = {name.split(".")[2] for name in state if name.startswith("decoder.blocks.")}
            heads = heads_of(self.name, dim, "decoder n_heads", given["decoder"].get("n_heads"))
            fields["head_options"] = {"layers": len(numbers), "dim": dim, "heads": heads, "hidden": hidden}
        else:
            fields["num_classes"] = sides(self.name, state, "decoder.head.weight", 2)[0]
            fields["head_options"] = {"norm": False}
        return ViTConfig(
            **fields,
            head="segmenter" if "decoder.cls_emb" in state else "linear_map",
            task="segmentation",
            encoding="learned_1d",
            encoding_options={"interpolation": "bilinear"},
            norm_eps=1e-5,
            fit="pad",
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config, head = model.config, model.head
        if isinstance(head, LinearMapHead) and not isinstance(head.norm, nn.Identity):
            raise InputError("segmenter: cannot hold head_options.norm = True (expected False)")
        names = _NORMALISED.items()
        given = {
            "image_size": pixels(model),
            "n_heads": config.heads,
            # How images are prepared is no part of what is computed.
            "normalization": next((name for name, one in names if one == (config.mean, config.std)), "vit"),
            "decoder": {"n_heads": head.encoding.shape.heads} if isinstance(head, SegmenterHead) else {},
        }
        return self.exported(model, ("segmenter", "linear_map"), given)

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        special = [
            kernel(config, "encoder.patch_embed.proj.weight"),
            prefixed("encoder.pos_embed", "encoding", config.num_prefix_tokens),
        ]
        if config.num_registers:
            special.append(copy("encoder.dist_token", "reg_token"))
        decoder = "decoder."
        if config.head == "segmenter":
            special.append(unbatched("decoder.cls_emb", "head.cls_emb"))
            # Theirs multiply from the right.
            special += [
                transform(f"decoder.{name}", f"head.{name}.weight", lambda x: x.T, lambda x: x.T)
                for name in ("proj_patch", "proj_classes")
            ]
        else:
            decoder = "decoder.head."
        return map_remaining(config, special, [(r"^(?!head\.)", "encoder."), (r"^head\.(fc\.)?", decoder)])
