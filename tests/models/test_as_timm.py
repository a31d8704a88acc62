"""The same calls on timm's own vision transformer and on ours: the same arguments, and answers of the same shape."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import pytest
import torch
from torch import nn

from sightline.distributed.machine import import_timm
from sightline.models import VisionTransformer, create_model

timm = import_timm()
METHODS = [
    "forward_intermediates", "get_intermediate_layers", "prune_intermediate_layers", "reset_classifier",
    "group_matcher", "set_grad_checkpointing", "get_classifier", "no_weight_decay",
]  # fmt: skip


@pytest.fixture(params=[0, 2])
def models(request) -> tuple[VisionTransformer, nn.Module]:
    """With a CLS token and registers, and with no prefix token."""
    registers = request.param
    pool, theirs = ("cls", "token") if registers else ("mean", "avg")
    ours = create_model(
        "vit_micro_patch4", dim=48, depth=3, heads=4, num_classes=5, image_size=16, num_registers=registers, pool=pool
    )
    other = timm.create_model(
        "vit_tiny_patch16_224", patch_size=4, embed_dim=48, depth=3, num_heads=4, num_classes=5, img_size=16,
        reg_tokens=registers, global_pool=theirs, class_token=bool(registers), dynamic_img_size=True, fc_norm=False,
    )  # fmt: skip
    return ours.eval(), other.eval()


def shapes(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: shapes(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return type(found), [shapes(one) for one in found]
    return tuple(found.shape)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_arguments(models, method: str) -> None:
    ours, theirs = (
        [(one.name, one.default) for one in inspect.signature(getattr(model, method)).parameters.values()]
        for model in models
    )
    # What is passed by place may have another name: images are more than a tensor x here.
    assert [(name, default) for name, default in ours if name != "images"] == [
        (name, default) for name, default in theirs if name != "x"
    ]


@torch.no_grad()
def test_the_same_intermediates(models) -> None:
    images = torch.randn(2, 3, 8, 12)
    flags = ("return_prefix_tokens", "norm", "stop_early", "intermediates_only", "output_dict")
    for indices, output_fmt in itertools.product((None, 2, [1], [-1, 0], (1, 1)), ("NCHW", "NLC")):
        for values in itertools.product((False, True), repeat=len(flags)):
            options = dict(zip(flags, values, strict=True))
            ours, theirs = (
                shapes(model.forward_intermediates(images, indices, output_fmt=output_fmt, **options))
                for model in models
            )
            assert ours == theirs, (indices, output_fmt, options)
    for n, reshape, prefix in itertools.product((1, 3, [0, 2]), (False, True), (False, True)):
        ours, theirs = (
            shapes(model.get_intermediate_layers(images, n, reshape=reshape, return_prefix_tokens=prefix))
            for model in models
        )
        assert ours == theirs


@torch.no_grad()
@pytest.mark.parametrize("pool", ["", "avg", None])
@pytest.mark.parametrize("classes", [0, 7])
def test_the_same_after_another_head(models, classes: int, pool: str | None) -> None:
    images = torch.randn(2, 3, 8, 12)
    found = []
    for model in models:
        model.reset_classifier(classes, pool)
        features = model.forward_features(images)
        found.append(
            (
                shapes(model(images)),
                shapes(model.forward_head(features, pre_logits=True)),
                model.global_pool,
                type(model.get_classifier()),
                model.num_classes,
            )
        )
    assert found[0] == found[1]


@torch.no_grad()
@pytest.mark.parametrize(("indices", "norm"), [(1, True), ([0, -2], False), (2, False)])
def test_the_same_after_pruning(models, indices, norm: bool) -> None:
    images = torch.randn(2, 3, 8, 12)
    found = []
    for model in models:
        taken = model.prune_intermediate_layers(indices, prune_norm=norm)
        left = {name.split(".")[0] for name, _ in model.named_parameters()} - {"pos_embed", "encoding"}
        found.append((sorted(taken), len(model.blocks), left, shapes(model(images))))
    assert found[0] == found[1]
