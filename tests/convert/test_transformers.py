"""What transformers saved is refused by what it is, in one line that says what can be done."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from sightline import load_model
from sightline.convert import export_weights, import_weights
from sightline.errors import InputError
from tests.contract.contract import build

KINDS = [
    ("ViTForImageClassification", "vit", "vit.embeddings.patch_embeddings.projection.weight"),
    ("Dinov2Model", "dinov2", "embeddings.patch_embeddings.projection.weight"),
    ("DINOv3ViTModel", "dinov3_vit", "embeddings.patch_embeddings.weight"),
    ("SiglipVisionModel", "siglip_vision_model", "embeddings.patch_embedding.weight"),
    ("CLIPModel", "clip", "vision_model.embeddings.patch_embedding.weight"),
]


@pytest.mark.parametrize(("kind", "model_type", "name"), KINDS)
def test_a_folder_of_transformers_is_named(kind, model_type, name, tmp_path, refused):
    record = {"architectures": [kind], "model_type": model_type, "hidden_size": 24}
    (tmp_path / "config.json").write_text(json.dumps(record))
    save_file({name: torch.zeros(24, 3, 4, 4)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=f"{kind} of transformers.*timm:NAME") as error:
        load_model(tmp_path)
    assert "\n" not in str(error.value)
    refused("convert", "timm", tmp_path, tmp_path / "out", says=[kind, "transformers", "timm:NAME"])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(InputError, match=f"{model_type} of transformers"):
        load_model(f"local-dir:{tmp_path}")


def test_timm_in_its_wrapper_is_timms():
    model = build("rope_mixed", dim=48, depth=1, heads=4)
    state, given = export_weights(model, "timm")
    found = import_weights("timm", {f"timm_model.{name}": one for name, one in state.items()}, given)
    assert all(torch.equal(one, found.state_dict()[name]) for name, one in model.state_dict().items())
