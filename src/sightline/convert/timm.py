"""timm's vision transformers: Model, Eva (EVA-02, RoPE-ViT, DINOv3, PE), Beit and NaFlexVit; and its Swin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from sightline.convert.base import Arguments, Project, State, differences
from sightline.convert.maps import TensorMap, concat, copy, fused, kernel, map_remaining, prefixed, transform, unbatched
from sightline.convert.rope_swin import swin_entries
from sightline.convert.timm_build import build, built
from sightline.convert.timm_read import read_fields
from sightline.convert.timm_write import arguments_for
from sightline.convert.vit_projects import SCALES, deit3_link
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.io.read import read_json
from sightline.models import Model, ViTConfig
from sightline.models.head import ScoreLink


class Timm(Project):
    """Whatever `timm.create_model` builds of those classes: the configuration is read off the module that it builds,
    on the meta device, and each part that our models lack is refused by name.

    `arguments` are `model`, the name, and everything else that `create_model` takes.
    """

    name = "timm"
    source = "https://github.com/huggingface/pytorch-image-models"
    arguments: ClassVar = {"model": None}
    # Where weights come from and in what form, and not what the model is.
    ignored = ("pretrained", "checkpoint_path", "cache_dir", "scriptable", "exportable", "no_jit")
    example = "model=vit_base_patch16_224"

    def filled(self, given: Arguments) -> dict[str, Any]:
        if not isinstance(given.get("model"), str):
            raise InputError("timm: the configuration has no model (the name that timm's create_model takes)")
        return dict(given)

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        return ViTConfig(**read_fields(built(given)))

    def score_link(self, config: ViTConfig, given: Arguments) -> ScoreLink:
        architecture, _, tag = given["model"].partition(".")
        return published_link(config, architecture, tag)

    def export_arguments(self, model: Model) -> dict[str, Any]:
        return arguments_for(model)

    def checked_arguments(self, model: Model) -> dict[str, Any]:
        """As it came, where that still says what it is: timm can build one model in many ways."""
        origin = model.config.origin or {}
        if origin.get("project") == self.name:
            given = {**origin["config"], "num_classes": model.config.num_classes}
            if not differences(self.import_config(given, {}), model):
                return given
        given = self.export_arguments(model)
        wrong = differences(self.import_config(given, {}), model)
        if not given.get("dynamic_img_size", True):
            # At the one size that it then takes nothing is resized.
            wrong = [one for one in wrong if not one.startswith("learned_1d interpolation = ")]
        self.require_no(wrong)
        return given

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        if config.architecture == "swin":
            return swin_entries(config, merging=0, head="head.fc")
        return entries_of(built(given), config)


def published_link(config: ViTConfig, architecture: str, tag: object) -> ScoreLink:
    """How logits of the weights that timm names so are read: DeiT III and RoPE-ViT share a recipe."""
    known = (architecture.startswith("deit3_") and tag == "fb_in1k") or tag == "naver_in1k"
    # Other classes than the published ones have a head that somebody else trained.
    return deit3_link(config) if known and config.num_classes == 1000 else "softmax"


def entries_of(module: Any, config: ViTConfig) -> list[TensorMap]:
    """Every tensor of the state dict of `module`, which `config` was read from."""
    first, naflex = module.blocks[0], hasattr(module, "embeds")
    renamed = [(r"^blocks\.0\.norm_pre", "norm_pre")]
    if config.embedder == "resnet" and not hasattr(module.patch_embed.backbone, "stages"):
        # The root alone stands for the whole stem there.
        renamed.append((r"^patch_embed\.backbone\.stem\.", "patch_embed.backbone."))
    if naflex:
        renamed += [(r"^(cls_token|reg_token)", r"embeds.\1"), (r"^patch_embed", "embeds")]
    if not hasattr(first, "ls1"):
        renamed += SCALES
    together = []
    if getattr(first.attn, "qkv", None) is None:
        # Where keys have no bias: else all three are one.
        renamed.append((r"\.([qv])_bias$", r".\1_proj.bias"))
        parts = ("weight", "bias") if config.qkv_bias is True else ("weight",)
        together.append(("attn", ("q_proj", "k_proj", "v_proj"), "qkv", parts))
    if hasattr(first.mlp, "fc1_g"):
        together.append(("mlp", ("fc1_g", "fc1_x"), "fc1", ("weight", "bias")))
    entries = [_patches(module.embeds, config) if naflex else kernel(config)]
    names = config.encoding.split("+")
    for number, name in enumerate(names):
        entries += _encoding(name, f"encoding.parts.{number}" if len(names) > 1 else "encoding", module, config)
    for layer in range(config.depth):
        for place, theirs, ours, parts in together:
            block = f"blocks.{layer}.{place}"
            entries += fused([f"{block}.{one}" for one in theirs], f"{block}.{ours}", parts)
    return map_remaining(config, entries, renamed)


def _patches(embed: Any, config: ViTConfig) -> TensorMap:
    """The kernel of a NaFlexViT."""
    theirs, ours, side = "embeds.proj.weight", "patch_embed.proj.weight", config.patch_size
    if not embed.is_linear:
        return kernel(config, theirs)
    if not embed.channels_last:
        return copy(theirs, ours)
    # A patch is flattened as (y, x, channel) where it does not say otherwise.
    return transform(
        theirs,
        ours,
        lambda x: x.reshape(-1, side, side, config.channels).permute(0, 3, 1, 2).flatten(1),
        lambda x: x.reshape(-1, config.channels, side, side).permute(0, 2, 3, 1).flatten(1),
    )


def _encoding(name: str, ours: str, module: Any, config: ViTConfig) -> list[TensorMap]:
    """The tensors of a part of the encoding that are laid out in another way."""
    if name == "rope_mixed":
        # Its first frequencies are of the first axis of its grid.
        turn = partial(torch.flip, dims=(0,)) if module.rope.grid_indexing == "ij" else torch.clone
        return [transform("rope.freqs", f"{ours}.freqs", turn, turn)]
    if name == "factorized":
        return [unbatched(f"embeds.pos_embed_{one}", f"{ours}.{to}") for one, to in (("y", "rows"), ("x", "cols"))]
    if name in ("rpe_learned", "rpe_learned_shared"):
        # One of all layers, or one in each.
        tables = [one for one in module.state_dict() if one.endswith(".relative_position_bias_table")]
        return [concat(tables, f"{ours}.tables", lambda x: x.unsqueeze(0), lambda x: x[0])]
    if name not in ("learned_1d", "learned_2d"):
        return []
    if hasattr(module, "embeds"):
        shape = (1, *module.embeds.pos_embed_grid_size, config.dim)
        return [transform("embeds.pos_embed", f"{ours}.table", lambda x: x.flatten(0, 2), lambda x: x.reshape(shape))]
    if getattr(module, "no_embed_class", False) or not config.num_prefix_tokens:
        return [unbatched("pos_embed", f"{ours}.table")]
    return [prefixed("pos_embed", ours, config.num_prefix_tokens)]


def import_timm_model(given: Arguments, *, pretrained: bool) -> Model:
    """Ours of what timm builds from `given`, with its published weights or those that it starts from.

    Raises:
        InputError: as `import_weights`; or the weights cannot be fetched.
    """
    from sightline.convert import import_weights

    # Refused before anything is fetched.
    config = Timm().import_config(Timm().filled(Timm().own_arguments(given)), {})
    built = build({**given, "pretrained": pretrained})
    model = import_weights(Timm.name, built.state_dict(), given)
    if pretrained and "num_classes" not in given:
        # A name without a tag has one of its own.
        named: Any = built.pretrained_cfg
        link = published_link(model.config, named.get("architecture", ""), named.get("tag"))
        # timm tells an ImageNet set by the number of its classes.
        data = import_timm().data
        subset = data.infer_imagenet_subset({"num_classes": config.num_classes})
        names = None if subset is None else tuple(map(str, data.ImageNetInfo(subset).label_descriptions() or ()))
        model.config = model.config.replace(score_link=link, class_names=names)
    return model


@dataclass(frozen=True)
class TimmFolder:
    """A model as timm saves it for the Hub.

    Attributes:
        given: `model` and the arguments of `create_model`; weights: the file; class_names: where they are known.
        tag: of the published weights that these are, or None where they are not known to be.
    """

    given: dict[str, Any]
    weights: Path
    class_names: tuple[str, ...] | None
    tag: object


def read_timm_folder(folder: Path) -> TimmFolder | None:
    """What timm's `save_for_hf` wrote into a folder, or None where timm wrote nothing.

    Raises:
        InputError: its config.json is damaged, or it has no weights.
    """
    try:
        record = read_json(folder / "config.json", "the configuration of a model")
    except InputError:
        # Who reads it as ours says what is wrong with it.
        return None
    if not isinstance(record, dict) or not isinstance(record.get("architecture"), str):
        return None
    arguments = record.get("model_args") or {}
    if not isinstance(arguments, dict):
        raise InputError(f"{folder}/config.json: model_args is not a group of keys")
    given, classes = {"model": record["architecture"], **arguments}, record.get("num_classes")
    if isinstance(classes, int):
        given["num_classes"] = classes
    prepared = record.get("pretrained_cfg")
    if not isinstance(prepared, dict):
        prepared = {}
    if prepared:
        # What this model was trained with, which may not be what its name stands for.
        given["pretrained_cfg_overlay"] = {key: prepared[key] for key in _PREPARATION if key in prepared}
    weights = next((folder / name for name in _WEIGHTS if (folder / name).exists()), None)
    if weights is None:
        raise InputError(f"{folder}: has a config.json of timm's and no weights (expected {' or '.join(_WEIGHTS)})")
    named = record.get("label_names")
    names = tuple(map(str, named)) if isinstance(named, list) and len(named) == classes else None
    return TimmFolder(given, weights, names, prepared.get("tag"))


_PREPARATION = ("mean", "std", "interpolation", "crop_pct", "crop_mode")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
