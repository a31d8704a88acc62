"""Models of images and texts against the public code (golden_text/)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from sightline import load_model
from sightline.convert import export_weights, import_weights
from sightline.models import Model
from sightline.models.contrastive import ContrastiveHead
from sightline.models.zero_shot import zero_shot_detector
from sightline.tasks.pair_losses import pair_loss
from tests.parity.family_files import assert_close, files, read, said_of, weights


def head_of(model: Model) -> ContrastiveHead:
    assert isinstance(model.head, ContrastiveHead)
    return model.head


def features(model: Model, images: Any) -> Tensor:
    """Projected images before they are made unit vectors."""
    rows, layout = model.prepare(images)
    return head_of(model).image_proj(model.pool(model.encode(rows, layout), model.encoded_layout(layout)))


@pytest.mark.parametrize("file", files("open_clip"))
@torch.no_grad()
def test_open_clip(file: str) -> None:
    tensors, said = read(file)
    state = weights(tensors)
    model = import_weights("open_clip", state, said)
    head = head_of(model)
    assert_close(features(model, tensors["in.images"]), tensors["out.image"])
    assert_close(head.text_proj(head.text(tensors["in.tokens"])), tensors["out.text"])
    images, texts = model(tensors["in.images"]), model.encode_text(tensors["in.tokens"])
    assert_close(head.logits(images, texts), tensors["out.logits"])
    for kind, bias in (("softmax", None), ("sigmoid", torch.tensor(-1.7))):
        loss = pair_loss(kind, images, texts, head.scale(), bias) / len(images)
        assert_close(loss, tensors[f"out.{'clip' if kind == 'softmax' else 'siglip'}_loss"])
    back, arguments = export_weights(model, "open_clip")
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], one) for name, one in state.items())
    # As `CustomTextCLIP` has them.
    custom = {name if name.startswith(("visual.", "logit_")) else f"text.{name}": one for name, one in back.items()}
    again = import_weights("open_clip", custom, {"model_cfg": arguments})
    assert again.config == model.config


@pytest.mark.parametrize("file", [*files("clip_pair"), *files("siglip_pair"), *files("siglip2_pair")])
@torch.no_grad()
def test_transformers(file: str) -> None:
    tensors, said = read(file)
    state, kind = weights(tensors), {"CLIPModel": "clip", "SiglipModel": "siglip", "Siglip2Model": "siglip2"}
    arguments = {f"{name}_config": said[name] for name in ("text", "vision")}
    arguments |= {"model_type": kind[said_of(file)["cls"].rpartition(".")[2]]}
    arguments |= {name: one for name, one in said.items() if name == "projection_dim"}
    model = import_weights("transformers", state, arguments)
    head = head_of(model)
    if "in.images" in tensors:
        images: Any = tensors["in.images"]
    else:
        side = model.config.patch_size
        images = [
            # Flat patches (row, column, channel) of each image, padded.
            one[: rows * cols].unflatten(0, (rows, cols)).unflatten(2, (side, side, -1)).permute(4, 0, 2, 1, 3)
            .reshape(-1, rows * side, cols * side)
            for one, (rows, cols) in zip(tensors["in.patches"], tensors["in.shapes"].tolist(), strict=True)
        ]  # fmt: skip
    ours, texts = model(images), model.encode_text(tensors["in.tokens"])
    assert_close(ours, tensors["out.image_normalised"])
    assert_close(texts, tensors["out.text_normalised"])
    assert_close(head.logits(ours, texts), tensors["out.logits_per_image"])
    if "in.large" in tensors:
        assert_close(features(model, tensors["in.large"]), tensors["out.large_image_features"])
    back, given = export_weights(model, "transformers")
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], one) for name, one in state.items())
    assert import_weights("transformers", back, given).config == model.config


@pytest.mark.parametrize("file", [*files("open_clip")[:1], *files("clip_pair")[:1], *files("siglip_pair")[:1]])
@torch.no_grad()
def test_folders_load_by_one_call(file: str, tmp_path: Path) -> None:
    tensors, said = read(file)
    if "vision_cfg" in said:
        save_file(weights(tensors), tmp_path / "open_clip_model.safetensors")
        record = {"model_cfg": said, "preprocess_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5]}}
        (tmp_path / "open_clip_config.json").write_text(json.dumps(record))
    else:
        save_file({name: one.half() for name, one in weights(tensors).items()}, tmp_path / "model.safetensors")
        kind = "clip" if "CLIP" in said_of(file)["cls"] else "siglip"
        record = {"model_type": kind, "text_config": said["text"], "vision_config": said["vision"]}
        record |= {"projection_dim": said["projection_dim"]} if kind == "clip" else {}
        (tmp_path / "config.json").write_text(json.dumps(record))
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3]}))
    model = load_model(tmp_path)
    assert model.config.mean == pytest.approx((0.1, 0.2, 0.3))
    logits = head_of(model).logits(model(tensors["in.images"]), model.encode_text(tensors["in.tokens"]))
    expected = tensors["out.logits" if "out.logits" in tensors else "out.logits_per_image"]
    # Half precision keeps three digits of the weights.
    assert_close(logits, expected, 5e-5 if "vision_cfg" in said else 5e-2)


@pytest.mark.parametrize("file", files("owlvit_whole"))
@torch.no_grad()
def test_detection_by_words(file: str) -> None:
    tensors, said = read(file)
    state, arguments = weights(tensors), {"text_config": said["text"], "vision_config": said["vision"]}
    model = import_weights("owlvit", state, arguments)
    texts = model.encode_text(tensors["in.tokens"]).view_as(tensors["out.text_embeds"])
    assert_close(texts, F.normalize(tensors["out.text_embeds"], dim=-1))
    names = [str(number) for number in range(texts.shape[1])]
    for image, queries in enumerate(texts):
        model.encode_text = lambda _, queries=queries: queries  # type: ignore[method-assign]
        found = zero_shot_detector(model, names, ["{}"])(tensors["in.images"][image : image + 1])[0]
        assert_close(found["logits"][0], tensors["out.logits"][image])
        rows, cols = model.config.train_grid
        y0, x0, y1, x1 = (found["boxes"][0] / torch.tensor([rows, cols] * 2)).unbind(-1)
        boxes = torch.stack(((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0), dim=-1)
        assert_close(boxes, tensors["out.boxes"][image])
    back, _ = export_weights(import_weights("owlvit", state, arguments), "owlvit")
    assert all(torch.equal(back[name], state[name]) for name in back)
    # What compares whole images with texts is not of the detector.
    assert state.keys() - back.keys() == {"owlvit.logit_scale", "owlvit.visual_projection.weight"}
