"""ViViT's first model (all tubelets attend to all) as transformers has it."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sightline.convert.base import Arguments, Project, State
from sightline.convert.hf_vit import GELUS
from sightline.convert.maps import TensorMap, fused, map_remaining, prefixed, transform
from sightline.errors import InputError
from sightline.io.config import check_value, whole
from sightline.models import Model, ViTConfig
from sightline.tokens.grid import Grid

_SIZES: dict[str, Any] = {"image_size": 224, "num_frames": 32, "tubelet_size": (2, 16, 16)}
_TRAINING = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.02}
# Names of transformers 4, and of 5.
_OLDER = (
    (r"encoder\.layer\.(\d+)\.", r"layers.\1."),
    (r"\.attention\.attention\.(q|k|v)(uery|ey|alue)\.", r".attention.\1_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
)
_HEAD, _INNER = "classifier.weight", "vivit."


class Vivit(Project):
    """The classes `VivitModel`, which gives the normed class token (no classes; its pooler is left out), and
    `VivitForVideoClassification`: one learned table for the class token and all tubelets, GELU by tanh (`gelu_fast`),
    LayerNorm eps 1e-6. Weights under the names of transformers 4 come back under those of 5.

    It passes over frames and pixels beyond the last whole tubelet; ours does so with pixels (`fit` crop), and repeats
    the last frame: a clip of a whole number of tubelets is the same. Its own interpolation of the table takes the
    square root of all tokens, those of time included; ours is linear in the three dimensions.
    """

    name = "vivit"
    source = "https://github.com/huggingface/transformers"
    arguments: ClassVar = {
        **dict.fromkeys(_SIZES), "num_channels": 3, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu_fast", "layer_norm_eps": 1e-6,
        "qkv_bias": True, **_TRAINING,
    }  # fmt: skip
    fields: ClassVar = {
        "num_channels": "channels", "hidden_size": "dim", "num_hidden_layers": "depth", "num_attention_heads": "heads",
        "layer_norm_eps": "norm_eps", "qkv_bias": "qkv_bias", "intermediate_size": "mlp_hidden",
        "hidden_act": ("gelu", GELUS),
    }  # fmt: skip
    encodings = ("learned_1d",)
    # Of a published `config.json`: what is no argument of the class, or says again what the others do.
    ignored = (
        "architectures", "model_type", "id2label", "label2id", "num_labels", "torch_dtype", "dtype",
        "transformers_version", "video_size",
    )  # fmt: skip
    aside = (r"pooler\.",)
    example = "num_frames=32"

    def rename_foreign(self, state: State) -> State:
        start = _INNER if _HEAD in state else ""
        found = {}
        for name, tensor in state.items():
            new = name.removeprefix(_INNER)
            for older, newer in _OLDER:
                new = re.sub(older, newer, new)
            found[new if new.startswith("classifier.") else start + new] = tensor
        return found

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        sizes = {name: _SIZES[name] if given[name] is None else given[name] for name in _SIZES}
        frames, *patch = Grid.checked(sizes["tubelet_size"], "vivit: tubelet_size", axes=3)
        if len(set(patch)) > 1:
            raise InputError(f"vivit: tubelet_size {(frames, *patch)}: expected (frames, side, side), equal sides")
        check_value("vivit: num_frames", sizes["num_frames"], whole(frames))
        size = Grid.checked(sizes["image_size"], "vivit: image_size")
        return ViTConfig(
            **self.plain_fields(given),
            patch_size=patch[0],
            image_size=(size.rows, size.cols),
            clip_frames=sizes["num_frames"] // frames * frames,
            fit="crop" if any(side % patch[0] for side in size) else "exact",
            embedder="tubelets",
            embedder_options={"frames": frames},
            encoding="learned_1d",
            num_classes=len(state[_HEAD]) if _HEAD in state else 0,
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        self.require("embedder", config.embedder, "tubelets")
        frames = config.tubelet or 1
        size = [side * config.patch_size for side in config.train_grid[-2:]]
        if config.fit == "crop" and config.grid_of(config.image_size) == config.train_grid:
            # What is passed over of an image of training is a part of its size there.
            size = list(Grid.checked(config.image_size))
        return {
            **self.plain_arguments(config),
            "image_size": size,
            "num_frames": config.train_grid[0] * frames,
            "tubelet_size": [frames, config.patch_size, config.patch_size],
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        start = _INNER if config.num_classes else ""
        shape = (config.dim, config.channels, config.tubelet or 1, config.patch_size, config.patch_size)
        embedding = f"{start}embeddings.patch_embeddings.projection.weight"
        special = [
            transform(embedding, "patch_embed.proj.weight", lambda x: x.flatten(1), lambda x: x.reshape(shape)),
            prefixed(f"{start}embeddings.position_embeddings", "encoding"),
            *(fused(["classifier"], "head") if config.num_classes else []),
        ]
        for number in range(config.depth):
            names = [f"{start}layers.{number}.attention.{one}_proj" for one in "qkv"]
            special += fused(names, f"blocks.{number}.attn.qkv", ("weight", "bias") if config.qkv_bias else ("weight",))
        renamed = [
            (r"\.norm1", ".layernorm_before"),
            (r"\.norm2", ".layernorm_after"),
            (r"\.attn\.proj", ".attention.o_proj"),
            (r"^blocks\.", f"{start}layers."),
            (r"^patch_embed\.proj", f"{start}embeddings.patch_embeddings.projection"),
            (r"^cls_token", f"{start}embeddings.cls_token"),
            (r"^norm\.", f"{start}layernorm."),
        ]
        return map_remaining(config, special, renamed)
