"""timm's vision transformers: VisionTransformer, Eva (EVA-02, RoPE-ViT, DINOv3, PE), Beit and NaFlexVit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sightline.convert.base import Entry, Project, differences
from sightline.convert.timm_arguments import arguments_for
from sightline.convert.timm_entries import entries_of
from sightline.convert.timm_reading import read_fields
from sightline.errors import InputError, choose
from sightline.models import VisionTransformer, ViTConfig
from sightline.runtime import import_timm


class Timm(Project):
    """Whatever `timm.create_model` builds of those classes: the configuration is read off the module that it builds,
    on the meta device, and each part that our models lack is refused by name.

    `arguments` are `model`, the name, and everything else that `create_model` takes.
    """

    name = "timm"
    source = "https://github.com/huggingface/pytorch-image-models"
    arguments: ClassVar = {"model": None}

    def filled(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(given.get("model"), str):
            raise InputError("timm: the configuration has no model (the name that timm's create_model takes)")
        return dict(given)

    def vit_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        return ViTConfig(**read_fields(_built(given)))

    def given(self, model: VisionTransformer) -> dict[str, Any]:
        config = model.config
        origin = config.origin or {}
        if origin.get("project") == self.name:
            # As it came, where that still says what it is; timm can build one model in many ways.
            given = {**origin["config"], "num_classes": config.num_classes}
            if not differences(self.vit_config(given, {}), model):
                return given
        given = arguments_for(config)
        self.compare(given, model)
        return given

    def entries(self, config: ViTConfig, given: Mapping[str, Any]) -> list[Entry]:
        return entries_of(_built(given), config)


def build(given: Mapping[str, Any], **more: Any) -> nn.Module:
    """The model that timm builds from `model`, a name, and the arguments of its `create_model`.

    Raises:
        InputError: the name or an argument is not known there (names the nearest), or a value is refused.
    """
    timm = import_timm()
    arguments = {key: value for key, value in given.items() if key != "model"}
    name = given["model"]
    architecture = name.split(".")[0]
    if not timm.is_model(architecture):
        raise choose("timm: model", architecture, timm.list_models(), limit=5)
    try:
        return timm.create_model(name, **arguments, **more)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"timm: {name} cannot be built: {said[:300]}") from None


_MODULES: dict[str, nn.Module] = {}


def _built(given: Mapping[str, Any]) -> nn.Module:
    """The module on the meta device, where it has no memory; the last few are kept."""
    try:
        key = json.dumps(given, sort_keys=True)
    except TypeError:
        key = None
    if key in _MODULES:
        return _MODULES[key]
    with torch.device("meta"):
        module = build({**given, "pretrained": False})
    if key is not None:
        while len(_MODULES) >= 4:
            _MODULES.pop(next(iter(_MODULES)))
        _MODULES[key] = module
    return module
