"""Models with a head of a dense task on a plain ViT, told by their weights: Segmenter, EoMT, OWL-ViT."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from sightline.convert.base import Arguments, Project, State
from sightline.convert.hf_pair import ClipPair, text_maps
from sightline.convert.maps import (
    TensorMap,
    copy,
    derived,
    fused,
    kernel,
    map_remaining,
    prefixed,
    transform,
    unbatched,
)
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig
from sightline.models.heads.linear_map import LinearMapHead
from sightline.models.heads.segmenter import SegmenterHead
from sightline.tokens.grid import Grid


class DenseProject(Project):
    """A project whose models have a head of all tokens, and a learned table on a plain trunk.

    Attributes:
        heads: names of ours that it can have.
        kernel, block, table: names of the patch embedding's convolution [dim, channels, height, width], of a block
            without its number, whose MLP is `.mlp.fc1` and `.mlp.fc2`, and of the table [..., places, dim].
        sized: names of the arguments that are the images' size and the number of attention heads.
        foreign: how names of weights of another kind begin -> why they are not read, and what can be had.
    """

    encodings = ("learned_1d",)
    heads: ClassVar[Sequence[str]]
    kernel: ClassVar[str]
    block: ClassVar[str]
    table: ClassVar[str]
    sized: ClassVar[tuple[str, str]]
    foreign: ClassVar[Mapping[str, str]] = {}

    def sides(self, state: State, name: str, axes: int) -> list[int]:
        """The shape of a tensor that must be there.

        Raises:
            InputError: it is missing, or has other than so many axes.
        """
        if name not in state:
            raise InputError(f"{self.name} weights: missing {name}")
        found = list(state[name].shape)
        if len(found) != axes or not all(found):
            raise InputError(f"{self.name} weights: {name} is {found}, expected {axes} axes, none of them 0")
        return found

    def trunk_fields(self, given: Arguments, state: State, prefix: Sequence[int], axes: int = 3) -> dict[str, Any]:
        """The fields of images and trunk that the weights tell, and the arguments `sized`; images are else a square.

        Args:
            prefix: how many rows of the table, which has so many axes, may be those of prefix tokens.

        Raises:
            InputError: the weights are of another kind, or lack one of these; or no square has as many patches.
        """
        for name in state:
            for start, why in self.foreign.items():
                if name.startswith(start):
                    raise InputError(f"{self.name} weights: {name}: {why}")
        dim, channels, patch, _ = self.sides(state, self.kernel, 4)
        numbers = [re.match(rf"{re.escape(self.block)}\.(\d{{1,6}})\.", name) for name in state]
        hidden = self.sides(state, f"{self.block}.0.mlp.fc2.weight", 2)[1]
        places, (size, heads) = self.sides(state, self.table, axes)[-2], self.sized
        squares = [cells for count in prefix if (cells := max(places - count, 0)) == math.isqrt(cells) ** 2 > 0]
        if given[size] is None and not squares:
            said = f"a table of {places} places is that of no square"
            raise InputError(f"{self.name}: {size} (height, width) is needed: {said}")
        pixels = math.isqrt(squares[0]) * patch if given[size] is None else given[size]
        return {
            "dim": dim, "channels": channels, "patch_size": patch, "mlp_ratio": hidden / dim,
            "depth": 1 + max((int(one[1]) for one in numbers if one), default=0),
            "heads": self.heads_of(dim, heads, given[heads]),
            "image_size": tuple(Grid.checked(pixels, f"{self.name}: {size}")),
        }  # fmt: skip

    def heads_of(self, dim: int, name: str, given: Any) -> Any:
        """Attention heads: as the argument of that name gives them, else of 64 channels, as published models have them.

        Raises:
            InputError: none are given, and 64 does not divide the width.
        """
        if given is None and dim % 64:
            raise InputError(f"{self.name}: {name} is needed (heads of 64 channels do not divide a width of {dim})")
        return dim // 64 if given is None else given

    def export_arguments(self, model: Model) -> dict[str, Any]:
        """The images' size, the number of attention heads, and what `fields` say."""
        config, (size, heads) = model.config, self.sized
        pixels = [side * config.patch_size for side in config.train_grid]
        return {**self.plain_arguments(config), size: pixels, heads: config.heads}

    def checked_arguments(self, model: Model) -> dict[str, Any]:
        """As of any project, of models with one of its heads and a class token."""
        self.require("head", model.config.head, *self.heads)
        self.require("class_token", model.config.has_class_token, True)
        return super().checked_arguments(model)


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
    heads = ("segmenter", "linear_map")
    kernel = "encoder.patch_embed.proj.weight"
    block = "encoder.blocks"
    table = "encoder.pos_embed"
    sized = ("image_size", "n_heads")
    inside = "net_kwargs"
    # ImageNet's classifier, which the decoder replaces.
    aside: ClassVar = (r"encoder\.head(_dist)?\.",)

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        require_known("segmenter: normalization", given["normalization"], _NORMALISED)
        mean, std = _NORMALISED[given["normalization"]]
        registers = int("encoder.dist_token" in state)
        trunk = self.trunk_fields(given, state, [1 + registers])
        fields = {**trunk, "num_registers": registers, "mean": mean, "std": std}
        if "decoder.cls_emb" in state:
            _, fields["num_classes"], dim = self.sides(state, "decoder.cls_emb", 3)
            hidden = self.sides(state, "decoder.blocks.0.mlp.fc1.weight", 2)[0]
            numbers = {name.split(".")[2] for name in state if name.startswith("decoder.blocks.")}
            heads = self.heads_of(dim, "decoder n_heads", given["decoder"].get("n_heads"))
            fields["head_options"] = {"layers": len(numbers), "dim": dim, "heads": heads, "hidden": hidden}
        else:
            fields["num_classes"] = self.sides(state, "decoder.head.weight", 2)[0]
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
        self.require("head_options.norm", isinstance(head, LinearMapHead) and head.options.norm, False)
        names = _NORMALISED.items()
        return {
            **super().export_arguments(model),
            # How images are prepared is no part of what is computed.
            "normalization": next((name for name, one in names if one == (config.mean, config.std)), "vit"),
            "decoder": {"n_heads": head.encoding.shape.heads} if isinstance(head, SegmenterHead) else {},
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        special = [
            kernel(config, self.kernel),
            prefixed(self.table, "encoding", config.num_prefix_tokens),
        ]
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
        return map_remaining(
            config, special, [("^reg_token", "dist_token"), (r"^(?!head\.)", "encoder."), (r"^head\.(fc\.)?", decoder)]
        )


_TRUNK = "encoder.backbone."
_PROBABILITIES = "attn_mask_probs"
_HAD = "ours are its trunks of timm: plain ViTs and DINOv2's"


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
    heads = ("eomt",)
    kernel = f"{_TRUNK}patch_embed.proj.weight"
    block = f"{_TRUNK}blocks"
    table = f"{_TRUNK}pos_embed"
    sized = ("img_size", "num_heads")
    aside: ClassVar = (rf"{_PROBABILITIES}$",)
    foreign: ClassVar = {
        f"{_TRUNK}embeddings.": f"its trunk is transformers' (DINOv3), stored as what is added to its weights; {_HAD}",
        f"{_TRUNK}rope": f"its trunk turns by position; {_HAD}",
        "embeddings.": "transformers' EomtForUniversalSegmentation; expected the project's own pytorch_model.bin",
    }

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        registers = self.sides(state, f"{_TRUNK}reg_token", 3)[1] if f"{_TRUNK}reg_token" in state else 0
        # DINOv2's table with registers is one of patches alone.
        trunk = self.trunk_fields(given, state, [0, 1 + registers])
        cells = trunk["image_size"][0] // trunk["patch_size"] * (trunk["image_size"][1] // trunk["patch_size"])
        hidden = self.sides(state, f"{self.block}.0.mlp.fc1.weight", 2)[0]
        for field in ("mean", "std"):
            name = f"encoder.pixel_{field}"
            if (found := self.sides(state, name, 4)) != [1, 3, 1, 1]:
                raise InputError(f"eomt weights: {name} is {found}, expected [1, 3, 1, 1]")
            trunk[field] = tuple(state[name].flatten().tolist())
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
            num_classes=self.sides(state, "class_head.weight", 2)[0] - 1,
            encoding="learned_1d",
            encoding_options={"interpolation": "bicubic_antialias", "prefix": state[self.table].shape[1] > cells},
            layer_scale=1.0 if f"{self.block}.0.ls1.gamma" in state else None,
            task="segmentation",
            head="eomt",
            head_options={
                "queries": self.sides(state, "q.weight", 2)[0], "blocks": blocks, "masked": masked,
                "masked_in_evaluation": masked and shares != {0.0},
            },
        )  # fmt: skip

    def export_arguments(self, model: Model) -> dict[str, Any]:
        head: Any = model.head
        said = {"num_blocks": head.blocks, "masked_attn_enabled": head.options.masked_in_evaluation}
        return {**super().export_arguments(model), **said}

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        special = [kernel(config, self.kernel), unbatched(self.table, "encoding.table")]
        if config.encoding_options.get("prefix", True):
            special[1] = prefixed(self.table, "encoding", config.num_prefix_tokens)
        for name, values in (("mean", config.mean), ("std", config.std)):
            special.append(derived([f"encoder.pixel_{name}"], torch.tensor(values, device="cpu").reshape(1, 3, 1, 1)))
        return map_remaining(config, special, [(r"^(?!head\.)", _TRUNK), (r"^head\.", "")])


_VISION = "owlvit.vision_model."
_EMBEDDINGS = f"{_VISION}embeddings."
_QUERIES = "query_embeds"


class _OwlText(ClipPair):
    text: ClassVar = {**ClipPair.text, "max_position_embeddings": 16, "pad_token_id": 0}


_OWL_TEXT = _OwlText()
_SCENIC = "scenic's flax weights; transformers' names for them are read here"


class OwlVit(DenseProject):
    """The class `OwlViTForObjectDetection`: CLIP's ViT with a norm before the blocks, quick GELU
    (the heads' is exact), LayerNorm eps 1e-5, and both heads.

    With its text tower, classes are words (`zero_shot_detector`). Else what classes are asked for is a tensor beside
    the weights: `query_embeds` [classes, width], what the text tower makes of their names (`get_text_features`). The
    arguments are those of `vision_config`, and `text_config`; what weights tell is not among them.
    """

    name = "owlvit"
    source = "https://github.com/huggingface/transformers"
    arguments: ClassVar = {
        "image_size": None, "num_attention_heads": None, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
        "text_config": {}, "tokenizer": "",
    }  # fmt: skip
    fields: ClassVar = {"hidden_act": ("gelu", {"quick_gelu": "quick", "gelu": "exact", "gelu_new": "tanh"})}
    only: ClassVar = ("layer_norm_eps",)
    example = ""
    heads = ("owlvit",)
    kernel = f"{_EMBEDDINGS}patch_embedding.weight"
    block = f"{_VISION}encoder.layers"
    table = f"{_EMBEDDINGS}position_embedding.weight"
    sized = ("image_size", "num_attention_heads")
    inside = "vision_config"
    foreign: ClassVar = {
        "owlv2.": "OWLv2 says of each patch whether it is an object, which ours does not; ours is OWL-ViT",
        "backbone/": _SCENIC,
        "backbone.": _SCENIC,
    }
    # The text tower, and what CLIP compares whole images with texts by.
    aside: ClassVar = (
        r"owlvit\.text_model\.", r"owlvit\.(text|visual)_projection\.", r"owlvit\.logit_scale$", r".*\.position_ids$",
    )  # fmt: skip

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        trunk = self.trunk_fields(given, state, [1], axes=2)
        width = self.sides(state, "class_head.dense0.weight", 2)[0]
        text = None
        if _QUERIES not in state:
            if not any(name.startswith("owlvit.text_model.") for name in state):
                raise InputError(
                    f"owlvit weights: missing the text tower, or {_QUERIES} [classes, {width}]: what it makes of the "
                    "classes' names (get_text_features)"
                )
            text = _OWL_TEXT.text_fields(given)
            width = state["owlvit.text_projection.weight"].shape[0]
        return ViTConfig(
            **trunk,
            **self.plain_fields(given),
            num_classes=self.sides(state, _QUERIES, 2)[0] if text is None else 0,
            encoding="learned_1d",
            encoding_options={"interpolation": "bicubic"},
            patch_bias=False,
            norm_pre=True,
            norm_eps=1e-5,
            mean=(0.48145466, 0.4578275, 0.40821073),
            std=(0.26862954, 0.26130258, 0.27577711),
            task="detection",
            head="owlvit",
            head_options={"query_dim": width, **({} if text is None else {"text": text})},
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        given, text = super().export_arguments(model), getattr(model.head.options, "text", None)
        return {**given, **_OWL_TEXT.text_arguments(text)} if text else given

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        special = [
            kernel(config, self.kernel),
            transform(f"{_EMBEDDINGS}class_embedding", "cls_token", lambda x: x[None, None], lambda x: x[0, 0]),
            prefixed(self.table, "encoding", batched=False),
            *fused([f"{_VISION}pre_layernorm"], "blocks.0.norm_pre"),
            *fused([f"{_VISION}post_layernorm"], "norm"),
        ]
        if text := config.head_options.get("text"):
            special += text_maps(text["depth"], "owlvit.")
            special += [
                copy("owlvit.text_projection.weight", "head.text_proj.weight"),
                # No class until words are given.
                TensorMap(
                    (), ("head.queries",), lambda _: [torch.zeros(0, config.head_options["query_dim"])], lambda _: []
                ),
            ]
        layer = rf"{self.block}.\1"
        for number in range(config.depth):
            heads = f"{self.block}.{number}.self_attn"
            special += fused([f"{heads}.{one}_proj" for one in "qkv"], f"blocks.{number}.attn.qkv")
        renamed = [
            (r"^blocks\.(\d+)\.norm(\d)", rf"{layer}.layer_norm\2"),
            (r"^blocks\.(\d+)\.attn\.proj", f"{layer}.self_attn.out_proj"),
            (r"^blocks\.(\d+)", layer),
            (r"^head\.queries", _QUERIES),
            (r"^head\.", ""),
        ]
        return map_remaining(config, special, renamed)
