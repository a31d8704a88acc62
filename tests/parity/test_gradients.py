"""Loss, norm of all gradients and chosen gradients against the projects that the weights come from."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.convert import import_weights
from tests.parity.golden_files import golden, keys, weights
from tests.parity.toy_models import FILES, arguments, toy_model

# Name in gradients.safetensors -> the model's file.
MODELS = {
    "lookhere_LH45": "lookhere_model_LH45",
    "ropevit_mixed": "ropevit_mixed",
    "ropevit_axial_ape": "ropevit_axial_ape",
    "timm_vit": "timm_vit_learned",
}
RELATIVE = 1e-4


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients(name: str, as_list: bool, recompute: bool) -> None:
    model = toy_model(MODELS[name])
    model.set_grad_checkpointing(recompute)
    images = golden(MODELS[name])["in.train"]
    logits = model(list(images) if as_list else images)
    loss = F.cross_entropy(logits, torch.arange(len(images)) % 7, label_smoothing=0.1)
    loss.backward()
    theirs = golden("gradients")
    assert relative_error(loss.detach(), theirs[f"{name}.loss"]) < RELATIVE

    ours = {key: parameter.grad for key, parameter in model.named_parameters()}
    norm = torch.stack([gradient.norm() for gradient in ours.values()]).norm()
    assert relative_error(norm, theirs[f"{name}.gradnorm"]) < RELATIVE

    prefix = f"{name}.grad."
    foreign = {key.removeprefix(prefix): theirs[key] for key in keys("gradients", prefix)}
    expected = _as_ours(MODELS[name], foreign)
    assert len(expected) >= len(foreign) > 4
    for key, gradient in expected.items():
        assert gradient.norm() > 0
        assert relative_error(ours[key], gradient) < RELATIVE, key


def _as_ours(file: str, foreign: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients take the way of the weights: what they change in our model is what they are gradients of."""
    assert foreign.keys() <= weights(file).keys()
    before = toy_model(file).state_dict()
    after = import_weights(FILES[file], {**weights(file), **foreign}, arguments(file)).state_dict()
    return {key: value for key, value in after.items() if not torch.equal(value, before[key])}
