"""Models of images and texts against the public code (golden_text/)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.convert import export_weights, import_weights
from sightline.models import Model
from sightline.models.contrastive import ContrastiveHead
from sightline.tasks.pair_losses import pair_loss
from tests.parity.family_files import assert_close, files, read, weights


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
