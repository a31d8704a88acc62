"""transformers' vision models against transformers (golden_hf/): tokens, pooled vectors, logits, whole folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sightline import load_model
from sightline.convert import export_weights, import_weights
from sightline.models import Model
from tests.parity.family_files import assert_close, files, path_of, read, said_of, weights

MODELS, FOLDERS = files("hf_vision"), files("hf_folder")
# What a plain ViT has not.
LEFT_OUT = ("pooler.dense.", "decoder.")


def check_outputs(model: Model, tensors: dict[str, Tensor], kind: str) -> None:
    """Every output of a file, at every size that it has."""
    tags = sorted({name.split(".")[1] for name in tensors if name.startswith("in.")})
    assert "train" in tags
    for tag in tags:
        images = tensors[f"in.{tag}"]
        if (last := tensors.get(f"out.{tag}.last")) is not None:
            if kind.startswith("CLIP"):
                # Theirs stand before the last norm.
                bare = model.forward_intermediates(images, indices=1, return_prefix_tokens=True, output_fmt="NLC")
                patches, prefix = bare[1][0]
                assert_close(torch.cat((prefix, patches), dim=1), last)
                last = model.norm(last)
            assert_close(model.forward_features(images), last)
        outputs = [tensors[name] for name in (f"out.{tag}.logits", f"out.{tag}.pooled") if name in tensors]
        # ViT's pooler is left out: what is pooled is the first token of `last`.
        expected = last[:, 0] if kind == "ViTModel" or not outputs else outputs[0]
        assert_close(model(images), expected)
        assert_close(torch.stack(tuple(model(list(images)))), expected)


@pytest.mark.parametrize("file", MODELS)
@torch.no_grad()
def test_outputs_at_every_size(file: str) -> None:
    tensors, given = read(file)
    check_outputs(import_weights("transformers", weights(tensors), given), tensors, said_of(file)["cls"])


@pytest.mark.parametrize("file", MODELS)
def test_there_and_back_bit_by_bit(file: str) -> None:
    tensors, given = read(file)
    state = weights(tensors)
    model = import_weights("transformers", state, given)
    back, arguments = export_weights(model, "transformers")
    kept = {name: one for name, one in state.items() if not name.startswith(LEFT_OUT)}
    assert back.keys() == kept.keys()
    assert all(torch.equal(back[name], one) for name, one in kept.items())
    again = import_weights("transformers", back, json.loads(json.dumps(arguments)))
    assert again.config == model.config
    assert all(arguments[key] == given[key] for key in arguments if key in given)


def partner(file: str) -> tuple[dict[str, Tensor], str]:
    """The file whose weights a folder has, and its class."""
    folder = path_of(file).parent
    beside: Any = next(one for one in MODELS if path_of(one).stem == folder.name)
    return read(beside)[0], said_of(beside)["cls"]


@pytest.mark.parametrize("file", FOLDERS)
@torch.no_grad()
def test_a_folder_loads_by_one_call(file: str, tmp_path: Path) -> None:
    folder, (tensors, kind) = path_of(file).parent, partner(file)
    model = load_model(folder)
    check_outputs(model, tensors, kind)
    said = json.loads((folder / "preprocessor_config.json").read_text())
    assert model.config.mean == tuple(said["image_mean"])
    assert model.config.std == tuple(said["image_std"])
    assert model.config.interpolation == {1: "lanczos", 2: "bilinear"}.get(said["resample"], "bicubic")
    if "height" in said["size"] and not said.get("do_center_crop"):
        assert model.config.image_size == (said["size"]["height"], said["size"]["width"])
        assert (model.config.crop, model.config.crop_mode) == (1.0, "squash")
    state = load_file(folder / "model.safetensors")
    assert state.keys() == weights(tensors).keys()
