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
    "navit": "navit_lucidrains",
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
    images = _images(MODELS[name])
    # Images of several sizes are a list, or come one by one.
    logits = model(list(images)) if as_list else torch.cat([model(batch) for batch in _batches(images)])
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
    for key, (gradient, given) in expected.items():
        assert gradient.norm() > 0
        assert relative_error(ours[key][given], gradient[given]) < RELATIVE, key


def _images(file: str) -> Tensor | list[Tensor]:
    found = golden(file)
    return found["in.train"] if "in.train" in found else [found[name] for name in keys(file, "in.pack")]


def _batches(images: Tensor | list[Tensor]) -> list[Tensor]:
    return [images] if isinstance(images, Tensor) else [image.unsqueeze(0) for image in images]


def _as_ours(file: str, foreign: dict[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Gradients take the way of the weights: what they change in our model is what they are gradients of. With each
    comes which of its values are given: a tensor of ours may be several of theirs."""
    assert foreign.keys() <= weights(file).keys()
    before = toy_model(file).state_dict()
    after = import_weights(FILES[file], {**weights(file), **foreign}, arguments(file)).state_dict()
    changed = {key: value != before[key] for key, value in after.items()}
    return {key: (after[key], where) for key, where in changed.items() if where.any()}
