"""What every family of models promises with every encoding and pooling that it admits; what it does not admit is
refused in a line."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

from sightline import create_model, load_model, registry, save_model
from sightline.encodings import list_encodings
from sightline.errors import InputError
from sightline.models import Model
from sightline.models.embedder import Embedder
from tests.contract.contract import GRADIENTS, LOGITS, assert_spread, loss_of
from tests.contract.randomise import randomise_parameters

# What makes a small model of each architecture and embedder, trained on 6 x 8 patches or windows of 2 x 4.
FAMILIES = {
    "vit": {},
    "swin": {
        "architecture": "swin",
        "architecture_options": {"depths": [2, 2], "heads": [12, 12], "window": 3},
        "image_size": 24,
        "depth": 4,
    },
    "axial": {"architecture": "axial"},
    "resnet": {
        "embedder": "resnet",
        "embedder_options": {"layers": [1], "width_factor": 0.125, "groups": 4},
        "fit": "pad",
    },
    "flexible": {"embedder": "flexible", "embedder_options": {"base": 8}},
    "tubelets": {"embedder": "tubelets", "embedder_options": {"frames": 2}, "clip_frames": 4},
}
POOLS = ("cls", "mean", "attention", "query")
JOINED = ["rope_axial+rpe_learned", "rope_mixed+learned_1d"]
# Pairs that are refused: (family, encoding) and (family, pool).
REFUSED = {
    *itertools.product(["swin"], ["cls", "attention", "query"]),
    *itertools.product(["swin"], [f"learned_{kind}_{at}" for kind in ("1d", "xy") for at in ("every", "shared")]),
    ("axial", "cls"),
    *itertools.product(["tubelets"], ["irpe", "irpe_bias", "irpe_qk", "irpe_qkv", "learned_2d", "relative_1d"]),
    *itertools.product(["tubelets"], ["rpe_learned", "rpe_learned_shared", "rope_axial+rpe_learned"]),
}
# In pixels: no two alike and none square, one smaller than all windows.
SIZES = [(48, 80), (80, 48), (16, 16), (32, 112)]

ENCODINGS = sorted([*list_encodings(), *JOINED])
PAIRS = [(family, encoding, "mean") for family, encoding in itertools.product(FAMILIES, ENCODINGS)]
PAIRS += [(family, "lookhere_90", pool) for family, pool in itertools.product(FAMILIES, POOLS) if pool != "mean"]


@functools.cache
def settings(family: str) -> dict:
    return {"num_classes": 5, "dim": 96, "depth": 2, "heads": 12, "image_size": (24, 32), **FAMILIES[family]}


def made(family: str, encoding: str, pool: str) -> Model:
    torch.manual_seed(0)
    model = create_model("vit_micro_patch4", encoding=encoding, pool=pool, **settings(family))
    return randomise_parameters(model, 0).eval()


def gradients(model: Model, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss_of(logits), list(named.values()), allow_unused=True)
    return {name: one for name, one in zip(named, found, strict=True) if one is not None}


def test_every_architecture_and_embedder_is_a_family_here():
    there = {*registry.classes(Model, "sightline.models.architectures")}
    there |= {*registry.classes(Embedder, "sightline.models.embedders")} - {"patches"}
    named = {given.get("architecture", "vit") for given in FAMILIES.values()}
    assert named | {given["embedder"] for given in FAMILIES.values() if "embedder" in given} == there


def test_all_that_is_refused_is_refused_in_a_line():
    said = {}
    for family, encoding, pool in PAIRS:
        try:
            made(family, encoding, pool)
        except InputError as error:
            said[family, encoding if pool == "mean" else pool] = str(error)
    assert set(said) == REFUSED
    assert all("\n" not in line and "expected" in line for line in said.values())


ADMITTED = [
    (family, encoding, pool)
    for family, encoding, pool in PAIRS
    if (family, encoding if pool == "mean" else pool) not in REFUSED
]


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("encoding", ["lookhere_90", "learned_1d"])
def test_no_images_give_no_answers(family, encoding):
    """As a rank has none in the last step of a run."""
    model = made(family, encoding, "mean")
    assert model([]).shape == (0, 5)
    assert model.forward_features([]) == []
    last, found = model.forward_intermediates([], output_fmt="NLC")
    assert last == []
    assert all(one == [] for one in found)
    assert model(torch.zeros(0, 3, 32, 32)).shape == (0, 5)


@pytest.mark.parametrize(("family", "encoding", "pool"), [
    pytest.param(*one, marks=[] if one[1:] == ("lookhere_90", "mean") else pytest.mark.slow) for one in ADMITTED
])  # fmt: skip
def test_packed_is_single_in_any_order_with_its_gradients(family, encoding, pool):
    model = made(family, encoding, pool)
    images = [torch.randn(3, *size, generator=torch.Generator().manual_seed(n)) for n, size in enumerate(SIZES)]
    alone = torch.cat([model(image.unsqueeze(0)) for image in images])
    assert_spread(alone.detach())
    expected = gradients(model, alone)
    packed = model(images)
    found = gradients(model, packed)
    for name, theirs in expected.items():
        assert (found[name] - theirs).norm() <= GRADIENTS * theirs.norm(), name
    assert (packed - alone).abs().max() < LOGITS
    with torch.no_grad():
        assert (model(images[::-1]).flip(0) - alone).abs().max() < LOGITS


@pytest.mark.parametrize("encoding", ["lookhere_90", "learned_1d"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_saved_comes_back(family, encoding, tmp_path):
    model = made(family, encoding, "mean")
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model").eval()
    assert type(again) is type(model)
    image = torch.randn(2, 3, 40, 24)
    with torch.no_grad():
        assert torch.equal(model(image), again(image))
