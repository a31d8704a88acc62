"""Hybrids to and from timm and vision_transformer: their own names, old files, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sightline.convert import export_weights, import_weights
from sightline.convert.timm import Timm
from sightline.convert.timm_build import built
from sightline.errors import InputError
from sightline.models import create_model
from sightline.models.embedders.resnet import resnet_options
from tests.contract.randomise import randomise_parameters

TIMM = {
    "vit_tiny_r_s16_p8_224": ((), 32),
    "vit_small_r26_s32_224": ((2, 2, 2, 2), 32),
    "vit_base_r50_s16_224": ((3, 4, 9), 16),
    "vit_large_r50_s32_384": ((3, 4, 6, 3), 32),
}


@pytest.mark.parametrize("name", TIMM)
def test_each_of_timms_is_known_by_its_name(name: str) -> None:
    config = Timm().import_config({"model": name}, {})
    layers, patch = TIMM[name]
    options = resnet_options(config)
    assert (options.layers, config.patch_size, options.width) == (layers, patch, 64)
    assert (options.groups, options.norm_eps, options.standardisation) == (32, 1e-5, "timm")
    theirs = built({"model": name}).state_dict()
    entries = [one for entry in Timm().tensor_maps(config, {"model": name}) for one in entry.foreign]
    assert sorted(entries) == sorted(theirs)


def ours(form: str = "timm", layers: Any = (), patch: int = 32, **changes: Any) -> Any:
    options = {"layers": layers, "norm_eps": 1e-5 if form == "timm" else 1e-6, "standardisation": form}
    fields = {"dim": 48, "depth": 1, "heads": 3, "num_classes": 5, "image_size": 64, "patch_size": patch}
    model = create_model(
        "vit_micro_patch4", embedder="resnet", embedder_options=options, encoding="learned_1d", **fields | changes
    )
    return randomise_parameters(model).eval()


@torch.no_grad()
def test_one_of_ours_becomes_timms_and_comes_back() -> None:
    model = ours(encoding_options={"interpolation": "bicubic_antialias"})
    state, given = export_weights(model, "timm")
    assert given["model"] == "vit_tiny_r_s16_p8_224"
    again = import_weights("timm", state, given)
    images = torch.randn(1, 3, 64, 96)
    assert torch.equal(again(images), model(images))
    with pytest.raises(InputError, match=r"timm: cannot hold embedder_options = .*'official'"):
        export_weights(ours("official", encoding_options={"interpolation": "bicubic_antialias"}), "timm")


@pytest.mark.parametrize("pool", ["cls", "mean"])
@torch.no_grad()
def test_vision_transformer_there_and_back_and_its_old_norms(pool: str) -> None:
    options: dict[str, Any] = {"interpolation": "corner_aligned"} | ({} if pool == "cls" else {"prefix": False})
    model = ours("official", [1, 1], 8, pool=pool, gelu="tanh", encoding_options=options, fit="crop")
    state, given = export_weights(model, "vision_transformer")
    assert given["resnet"] == {"num_layers": [1, 1], "width_factor": 1.0}
    assert (given["classifier"], given["patches"]) == ("token" if pool == "cls" else "gap", {"size": [1, 1]})
    # Published files hold the vectors of group norms so.
    old = {key: value.view(1, 1, 1, -1) if "/gn" in f"/{key}" else value for key, value in state.items()}
    assert sum(value.dim() == 4 for value in old.values()) > 15
    images = torch.randn(1, 3, 37, 50)
    for one in (state, old):
        again = import_weights("vision_transformer", one, given)
        assert torch.equal(again(images), model(images))
    with pytest.raises(InputError, match="vision_transformer: cannot hold embedder_options"):
        export_weights(ours("timm", [1, 1], 8, gelu="tanh", encoding_options=options), "vision_transformer")
    with pytest.raises(InputError, match=r"resnet\.num_layers 3: expected a list"):
        import_weights("vision_transformer", state, {**given, "resnet": {"num_layers": 3}})
