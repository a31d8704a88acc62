"""Whole models against the projects that they come from, on and off the training grid."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.tokens.layout import TokenLayout
from tests.parity.golden_files import FOLDER, golden, keys
from tests.parity.toy_models import FILES, LEFT_OUT, toy_model

TOLERANCE = 2e-5
LOOKHERE = [file for file, project in FILES.items() if project == "lookhere"]
BIG_VISION = [file for file, project in FILES.items() if project == "big_vision"]
NAFLEX = [file for file in FILES if file.startswith("timm_naflex")]
NAVIT = [file for file, project in FILES.items() if project == "navit"]
REST = [file for file in FILES if file not in (*LOOKHERE, *BIG_VISION, *NAFLEX, *NAVIT)]


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert theirs.std() > 0.02, "the reference is flat and would prove nothing"
    assert (ours - theirs).abs().max() <= TOLERANCE


@pytest.mark.parametrize("file", LOOKHERE)
@torch.no_grad()
def test_lookhere(file: str) -> None:
    model, theirs = toy_model(file), golden(file)
    assert_close(model(theirs["in.train"]), theirs["out.train.logits"])
    assert_close(model.forward_features(theirs["in.train"]), theirs["out.train.features"])
    assert_close(model(theirs["in.big"]), theirs["out.big.logits"])
    model.set_knob(0.6)
    assert_close(model(theirs["in.big"]), theirs["out.big_gs0.6.logits"])
    model.set_knob(0.75)
    assert_close(model(theirs["in.rect"]), theirs["out.rect_gs0.75.logits"])
    assert_close(model.forward_features(theirs["in.rect"]), theirs["out.rect_gs0.75.features"])
    # The knob goes back: nothing was kept of the other slopes.
    model.set_knob(1.0)
    assert_close(model(theirs["in.big"]), theirs["out.big.logits"])


@pytest.mark.parametrize(("file", "shape"), [(file, key.split(".")[1]) for file in REST for key in keys(file, "in.")])
@torch.no_grad()
def test_logits(file: str, shape: str) -> None:
    model, theirs = toy_model(file), golden(file)
    images = theirs[f"in.{shape}"]
    assert_close(model(images), theirs[f"out.{shape}.logits"])
    assert_close(model(list(images)), theirs[f"out.{shape}.logits"])


@pytest.mark.parametrize("file", [file for file in REST if "out.train.features" in keys(file)])
@torch.no_grad()
def test_features(file: str) -> None:
    theirs = golden(file)["out.train.features"]
    assert_close(toy_model(file).forward_features(golden(file)["in.train"]), theirs)


@pytest.mark.parametrize("file", [file for file in REST if "out.train.cls_feature" in keys(file)])
@torch.no_grad()
def test_cls_feature(file: str) -> None:
    model, theirs = toy_model(file), golden(file)
    features = model.forward_features(theirs["in.train"])
    assert_close(model.forward_head(features, pre_logits=True), theirs["out.train.cls_feature"])


@pytest.mark.parametrize("file", [file for file in REST if file.startswith("ropevit")])
@torch.no_grad()
def test_same_count_of_patches_in_another_shape(file: str) -> None:
    """8 x 32 pixels have the patches of 16 x 16; the public code then uses the square's positions."""
    theirs = golden(file)
    ours = toy_model(file)(theirs["in.samecount"])
    assert_close(ours, theirs["out.samecount.logits"])
    assert (ours - theirs["officialbug.samecount.logits"]).abs().max() > 0.1


@pytest.mark.parametrize("file", BIG_VISION)
@torch.no_grad()
def test_big_vision(file: str) -> None:
    model, theirs = toy_model(file), golden(file)
    images = theirs["in.x_nhwc"].permute(0, 3, 1, 2)
    assert_close(model(images), theirs["out.logits"])
    features = model.forward_features(images)
    assert_close(features, theirs["out.encoded"])
    assert_close(model.forward_head(features, pre_logits=True), theirs["out.pre_logits"])


@pytest.mark.parametrize("file", NAFLEX)
@torch.no_grad()
def test_naflex(file: str) -> None:
    """Images of four shapes, alone and together, and as the flat patches that NaFlexViT is given."""
    model, theirs = toy_model(file), golden(file)
    images = [theirs[f"in.image{number}"] for number in range(4)]
    assert_close(torch.cat([model(image) for image in images]), theirs["out.single.logits"])
    assert_close(model([image[0] for image in images]), theirs["out.logits"])

    # Its patches are flattened as (y, x, channel), padded to the longest; ours stand one after the other.
    valid = theirs["in.patch_valid"].bool()
    flat = theirs["in.patches"].unflatten(-1, (4, 4, 3)).permute(0, 1, 4, 2, 3).flatten(2)
    grids = [tuple((image.max(dim=0).values + 1).tolist()) for image in _valid_coords(theirs, valid)]
    layout = TokenLayout.packed(grids, num_prefix_tokens=model.num_prefix_tokens)
    for ours, reference in zip(layout.segments, _valid_coords(theirs, valid), strict=True):
        assert torch.equal(ours.coords[0], reference)
    assert_close(model(flat[valid].unsqueeze(0), layout=layout), theirs["out.logits"])


def _valid_coords(theirs: dict[str, Tensor], valid: Tensor) -> list[Tensor]:
    return [coords[keep].long() for coords, keep in zip(theirs["in.patch_coord"], valid, strict=True)]


@pytest.mark.parametrize("file", NAVIT)
@torch.no_grad()
def test_navit(file: str) -> None:
    """Six images alone, in its own packs, and all in one, whose logits are the same whoever is beside them."""
    model, theirs = toy_model(file), golden(file)
    names = keys(file, "in.pack")
    images = [theirs[name] for name in names]
    assert_close(torch.cat([model(image.unsqueeze(0)) for image in images]), theirs["out.single.logits"])
    assert_close(model(images), theirs["out.packed.logits"])
    packs: dict[str, list[Tensor]] = {}
    for name, image in zip(names, images, strict=True):
        packs.setdefault(name.split(".")[1], []).append(image)
    assert len(packs) == 3
    assert_close(torch.cat([model(pack) for pack in packs.values()]), theirs["out.packed.logits"])
    # Groups that it makes itself, in the order of the images.
    sizes = theirs["autogroup.sizes"].tolist()
    grouped = torch.tensor(list(range(len(images)))).split(sizes)
    found = torch.cat([model([images[number] for number in group]) for group in grouped])
    assert_close(found, theirs["out.autogroup.logits"])


def test_every_golden_model_is_used_or_named_here() -> None:
    """No file with weights is passed over by mistake: what remains are windows (Swin)."""
    with_weights = {path.stem for path in FOLDER.glob("*.safetensors") if keys(path.stem, "sd.")}
    assert with_weights == FILES.keys() | LEFT_OUT
    assert len(LOOKHERE) == 3
    assert len(BIG_VISION) == 4
    assert len(NAFLEX) == 7
    assert len(NAVIT) == 1
    assert len(REST) == 4 + 11
    # Every input of a file has a test: sizes by name, the four images of NaFlexViT, one NHWC batch.
    for file in FILES:
        for name in keys(file, "in."):
            if name.startswith("in.pack") and file in NAVIT:
                continue
            kind = name.removeprefix("in.").rstrip("0123")
            known = {"train", "big", "rect", "down", "odd", "samecount", "x_nhwc", "image"}
            assert kind in known | {"patches", "patch_coord", "patch_valid"}, (file, name)
