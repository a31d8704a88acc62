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
from tests.contract.contract import LOGITS, assert_same_gradients, assert_spread, gradients, loss_of
from tests.contract.randomise import randomise_parameters

# What makes a small model of each architecture and embedder, trained on 6 x 8 patches or windows of 2 x 4.
FAMILIES = {
    "vit": {},
    "swin": {
        "architecture": "swin",
        "architecture_options": {"depths": [1, 1], "heads": [6, 12], "window": [2, 4]},
        "heads": 6,
        "patch_norm": "after",
    },
    "axial": {"architecture": "axial"},
    "hybrid": {"embedder": "resnet", "embedder_options": {"layers": [], "width_factor": 0.5}},
    "flexible": {"embedder": "flexible", "embedder_options": {"base": 8}},
    "tubelets": {"embedder": "tubelets"},
}
POOLS = ("cls", "mean", "attention", "query")
JOINED = ["rope_axial+rpe_learned", "rope_mixed+learned_1d"]
# Pairs that are refused: (family, encoding) and (family, pool).
REFUSED: set[tuple[str, str]] = {("swin", "cls"), ("swin", "attention"), ("swin", "query"), ("axial", "cls")}
REFUSED |= {("tubelets", name) for name in [*list_encodings(), *JOINED[:1]] if "rpe" in name or name == "learned_2d"}
REFUSED |= {("tubelets", "relative_1d")}
REFUSED |= {("swin", name) for name in list_encodings() if name.endswith("_every") or name.endswith("_1d_shared")}
REFUSED |= {("swin", "learned_xy_shared")}
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


@pytest.mark.slow
@pytest.mark.parametrize(("family", "encoding", "pool"), ADMITTED)
def test_packed_is_single_in_any_order_with_its_gradients(family, encoding, pool):
    model = made(family, encoding, pool)
    images = [torch.randn(3, *size, generator=torch.Generator().manual_seed(n)) for n, size in enumerate(SIZES)]
    alone = torch.cat([model(image.unsqueeze(0)) for image in images])
    assert_spread(alone.detach())
    loss_of(alone).backward()
    expected = gradients(model)
    packed = model(images)
    loss_of(packed).backward()
    assert_same_gradients(gradients(model), expected)
    assert (packed - alone).abs().max() < LOGITS
    with torch.no_grad():
        assert (model(images[::-1]).flip(0) - alone).abs().max() < LOGITS


@pytest.mark.slow
@pytest.mark.parametrize(("family", "encoding", "pool"), ADMITTED)
def test_what_was_saved_comes_back(family, encoding, pool, tmp_path):
    model = made(family, encoding, pool)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model").eval()
    assert type(again) is type(model)
    image = torch.randn(2, 3, 40, 24)
    with torch.no_grad():
        assert torch.equal(model(image), again(image))
