"""FlexiViT's patch sizes against the public code (golden_families/): kernels, big_vision's model and timm's."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.convert import export_weights, import_weights
from sightline.hub.fine_tune import create_model
from sightline.models import Model
from sightline.models.kernel_resize import axis_inverse, axis_matrix, resize_kernel
from tests.parity.family_files import files, read, timm_name, weights

# As the README of the files says: a float32 pseudo-inverse against float64.
KERNELS, TABLES, OUTPUTS, GRADIENTS = 1e-5, 1e-6, 5e-5, 1e-4


RESIZES, BIG_VISION, TIMM = files("flexi_resample"), files("flexi_bigvision"), files("flexi_timm")


def difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    # What is the same everywhere would equal anything.
    assert theirs.numel() < 4 or theirs.std() > 5 * OUTPUTS
    return float((ours - theirs).abs().max())


def rule_of(project: str, *said: str) -> str | None:
    """Our name for a rule of a file; None for what must not come out."""
    if project == "timm":
        mode, antialias = said
        return mode + {"aa0": "", "aa1": "_antialias"}[antialias]
    return {"timm_old": "bicubic_antialias", "bigvision": "bilinear", "bicubic_plain": None}[project]


@pytest.mark.parametrize("file", RESIZES)
def test_resized_kernels(file: str) -> None:
    tensors, _ = read(file)
    kernel, seen = tensors["patch_w"], 0
    for name, theirs in tensors.items():
        kind, *rest = name.split(".")
        if kind == "out":
            project, text, *said = rest
            if project == "timm_old":
                # Its own name says the rule again.
                said = []
            size = tuple(map(int, text.split("x")))
            rule = rule_of(project, *said) if project != "bicubic_plain" else None
            if rule is None:
                # Resizing the weights themselves is another thing.
                assert size == kernel.shape[-2:] or difference(resize_kernel(kernel, size), theirs) > 0.01, name
                continue
            assert difference(resize_kernel(kernel, size, rule), theirs) <= KERNELS, name
            wide = resize_kernel(kernel.double(), size, rule)
            assert wide.dtype == torch.float64
            assert difference(wide.float(), theirs) <= KERNELS, name
            seen += 1
    assert seen


@pytest.mark.parametrize("file", RESIZES)
def test_resize_matrices(file: str) -> None:
    tensors, _ = read(file)
    old = tensors["patch_w"].shape[-2:]
    for name in [name for name in tensors if name.startswith("table.resize_matrix.")]:
        text, mode, antialias = name.split(".")[2:]
        rule = mode + {"aa0": "", "aa1": "_antialias"}[antialias]
        rows, cols = (axis_matrix(*sides, rule) for sides in zip(old, map(int, text.split("x")), strict=True))
        assert difference(torch.kron(rows, cols).float(), tensors[name]) <= TABLES, name


@pytest.mark.parametrize("rule", ["bicubic_antialias", "bicubic", "bilinear_antialias", "bilinear"])
@pytest.mark.parametrize(("old", "new"), [((8, 8), (5, 9)), ((6, 10), (10, 6)), ((3, 7), (5, 16)), ((16, 12), (4, 5))])
def test_the_inverses_of_axes_are_the_inverse_of_the_whole(rule: Any, old: tuple, new: tuple) -> None:
    """Also where the whole has not full rank; and the gradient is that of the dense matrix."""
    rows, cols = (axis_matrix(*sides, rule) for sides in zip(old, new, strict=True))
    whole = torch.linalg.pinv(torch.kron(rows, cols), rtol=1e-6)
    each = (axis_inverse(*sides, rule) for sides in zip(old, new, strict=True))
    assert difference(torch.kron(*each), whole) <= 1e-9
    kernel = torch.randn(3, 2, *old, requires_grad=True)
    towards = torch.randn(3, 2, *new)
    (resize_kernel(kernel, new, rule) * towards).sum().backward()
    expected = (whole @ towards.double().flatten(2).unsqueeze(-1)).reshape(kernel.shape)
    assert kernel.grad is not None
    assert (kernel.grad - expected).norm() / expected.norm() <= GRADIENTS


def flexi(file: str) -> tuple[Model, dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    tensors, said = read(file)
    cases = said.pop("cases")
    if "num_classes" not in said:
        said["num_classes"] = weights(tensors)["head/kernel"].shape[1]
    return import_weights("big_vision_flexi", weights(tensors), said), tensors, said, cases


@pytest.mark.parametrize("file", BIG_VISION)
def test_big_vision(file: str) -> None:
    model, tensors, _, cases = flexi(file)
    expected_back = weights(tensors)
    for name, case in cases.items():
        images = tensors[f"in.{name}_nhwc"].permute(0, 3, 1, 2)
        assert list(images.shape[-2:]) == case["image"]
        size = tuple(side // case["seqhw"] for side in images.shape[-2:])
        square = size[0] == size[1]
        # Pixels beyond the last whole patch are passed over there; ours says so or refuses.
        images = images[..., : size[0] * case["seqhw"], : size[1] * case["seqhw"]]
        model.set_patch_size(size, images.shape[-1] if square else None)
        with torch.no_grad():
            rows, layout = model.cut(images)
            stem = model.patch_embed(rows, layout.patches_only()).unflatten(1, (case["seqhw"],) * 2)
            assert difference(stem, tensors[f"out.{name}.stem"]) <= OUTPUTS, name
            assert difference(model(images), tensors[f"out.{name}.logits"]) <= OUTPUTS, name
            pooled = model.forward_head(model.forward_features(images), pre_logits=True)
            assert difference(pooled, tensors[f"out.{name}.pre_logits"]) <= OUTPUTS, name
        if square:
            # Whatever patches it is used with, its weights are what they were.
            back, given = export_weights(model, "big_vision_flexi")
            assert back.keys() == expected_back.keys()
            assert all(torch.equal(back[key], tensor) for key, tensor in expected_back.items())
            again = import_weights("big_vision_flexi", back, json.loads(json.dumps(given)))
            assert again.config == model.config


def timm_model(file: str, flexible: bool) -> tuple[Model, dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    tensors, said = read(file)
    cases = said.pop("cases")
    model = import_weights("timm", weights(tensors), {"model": timm_name(file), **said})
    if flexible:
        model = create_model(init_from=model, embedder="flexible").eval()
    return model, tensors, said, cases


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("file", TIMM)
def test_timm(file: str, flexible: bool) -> None:
    model, tensors, _, cases = timm_model(file, flexible)
    with torch.no_grad():
        assert difference(model(tensors["in.train"]), tensors["out.train.logits"]) <= OUTPUTS
    for name, case in cases.items():
        # A plain model is another one after it, as timm's is.
        model, *_ = timm_model(file, flexible)
        model.set_input_size(tuple(case["img_size"]), tuple(case["patch_size"]))
        images = tensors[f"in.{name}"]
        with torch.no_grad():
            kernel = model.patch_embed.kernel(case["patch_size"]) if flexible else model.patch_embed.proj.weight
            theirs = tensors[f"table.{name}.patch_embed.proj.weight"].flatten(1)
            assert difference(kernel, theirs) <= KERNELS, name
            grid = [side // patch for side, patch in zip(case["img_size"], case["patch_size"], strict=True)]
            parts = [model.encoding.prefix_embedding(), model.encoding.embedding(grid)]
            table = torch.cat([part for part in parts if part is not None]).unsqueeze(0)
            assert difference(table, tensors[f"table.{name}.pos_embed"]) <= TABLES, name
            assert difference(model(images), tensors[f"out.{name}.logits"]) <= OUTPUTS, name
            assert difference(model.forward_features(images), tensors[f"out.{name}.features"]) <= OUTPUTS, name


@pytest.mark.parametrize("file", TIMM)
def test_timm_there_and_back(file: str) -> None:
    """Also of a flexible model, as long as its patches are those of the kernel; and one that is made plain."""
    for flexible in (False, True):
        model, tensors, _, _ = timm_model(file, flexible)
        back, _ = export_weights(model, "timm")
        expected = weights(tensors)
        assert back.keys() == expected.keys()
        assert all(torch.equal(back[key], tensor) for key, tensor in expected.items())
