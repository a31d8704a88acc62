"""Masked patch prediction against vit-pytorch's, and against the paper's words (golden_families/)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.models import Model, create_model
from sightline.models.corruption import MASKED, Corruption, CorruptionDraw, apply_corruption
from sightline.models.heads.masked_patches import MaskedPatchesHead
from sightline.tasks.base import make_task
from sightline.tasks.patch_targets import class_colours, colour_classes, in_cells
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import patchify
from tests.parity.family_files import assert_close, files, read


def channel_first(values: Tensor, channels: int) -> Tensor:
    """Values of patches in the order (y, x, channel) of theirs, in ours: (channel, y, x)."""
    return values.unflatten(-1, (-1, channels)).transpose(-2, -1).flatten(-2)


def triple(given: Any, default: float, count: int) -> Tensor:
    values = default if given is None else given
    return torch.tensor(values, dtype=torch.float32).expand(count).view(1, count, 1, 1)


def labels_and_loss(image: Tensor, logits: Tensor, mask: Tensor, said: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """`MPPLoss` of our parts."""
    bits, most, count = said.get("output_channel_bits", 3), said.get("max_pixel_val", 1.0), image.shape[1]
    image = image * triple(said.get("std"), 1.0, count) + triple(said.get("mean"), 0.0, count)
    rows = patchify(image, said["patch_size"])
    labels = colour_classes(rows.unflatten(-1, (count, -1)), bits, most)
    return labels, F.cross_entropy(logits[mask], labels[mask])


@pytest.mark.parametrize("file", files("mpp_loss"))
def test_the_loss_of_vit_pytorch(file: str) -> None:
    tensors, said = read(file)
    image, logits, mask = tensors["in.image"], tensors["in.logits"], tensors["in.mask"]
    labels, loss = labels_and_loss(image, logits, mask, said)
    assert torch.equal(labels, tensors["out.labels"].long())
    assert_close(loss, tensors["out.loss"])
    # The classes are told apart: not all of them are one.
    assert len(labels.unique()) > 1
    # Red is the least significant: of the other order it would be another number.
    colours = class_colours(labels, said.get("output_channel_bits", 3), image.shape[1], said.get("max_pixel_val", 1.0))
    means = image.clone()
    if said.get("mean") is not None:
        means = means * triple(said["std"], 1.0, image.shape[1]) + triple(said["mean"], 0.0, image.shape[1])
    means = patchify(means.clamp(max=said.get("max_pixel_val", 1.0)), said["patch_size"])
    means = means.unflatten(-1, (image.shape[1], -1)).mean(-1)
    half = said.get("max_pixel_val", 1.0) / 2 ** said.get("output_channel_bits", 3) / 2
    inside = means > 0
    assert ((colours - means).abs()[inside] <= half * (1 + 1e-5)).all()


def built(file: str) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    """`MPP` of `ViT`, its weights under our names; there is no converter of that class."""
    tensors, said = read(file)
    theirs = {key.removeprefix("sd."): value for key, value in tensors.items() if key.startswith("sd.")}
    heads, dim = said["heads"], said["dim"]
    inner = theirs["transformer.transformer.layers.0.0.to_qkv.weight"].shape[0] // 3
    channels = theirs["mask_token"].shape[-1] // said["patch_size"] ** 2
    bits = round(math.log2(theirs["to_bits.weight"].shape[0]) / channels)
    model = create_model(
        "vit_micro_patch4", patch_size=said["patch_size"], dim=dim, depth=said["depth"], heads=heads,
        head_dim=inner // heads, mlp_ratio=said["mlp_dim"] / dim, image_size=tuple(tensors["in.image"].shape[-2:]),
        channels=channels, encoding="learned_1d", patch_norm=True, qkv_bias=False, norm_eps=1e-5, num_classes=0,
        task="masked_patches", head="masked_patches",
        head_options={
            "bits": bits, "mask_in": "pixels", "share": said["mask_prob"], "masked": said["replace_prob"],
            "random": said["random_patch_prob"],
        },
    )  # fmt: skip
    start = "transformer.transformer.layers."
    names = {
        "mask_token": "head.mask_token", "to_bits": "head.fc", "transformer.cls_token": "cls_token",
        "transformer.to_patch_embedding.1": "patch_embed.norm_input",
        "transformer.to_patch_embedding.2": "patch_embed.proj", "transformer.to_patch_embedding.3": "patch_embed.norm",
        "transformer.transformer.norm": "norm", "transformer.pos_embedding": "encoding.table",
    }  # fmt: skip
    for layer in range(said["depth"]):
        ours = {"0.norm": "norm1", "0.to_qkv": "attn.qkv", "0.to_out.0": "attn.proj"}
        ours |= {"1.net.0": "norm2", "1.net.1": "mlp.fc1", "1.net.4": "mlp.fc2"}
        names |= {f"{start}{layer}.{one}": f"blocks.{layer}.{other}" for one, other in ours.items()}
        if f"{start}{layer}.0.to_out.0.weight" not in theirs:
            # One head as wide as the model has no projection.
            theirs[f"{start}{layer}.0.to_out.0.weight"] = torch.eye(dim)
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items() if torch.is_tensor(value)}
    for key, value in theirs.items():
        if key.startswith("transformer.mlp_head"):
            continue
        stem, _, leaf = key.rpartition(".")
        name = names[key] if key in names else f"{names[stem]}.{leaf}"
        if key == "mask_token":
            value = channel_first(value, channels).flatten()
        elif stem == "transformer.to_patch_embedding.1" or key == "transformer.to_patch_embedding.2.weight":
            value = channel_first(value, channels)
        elif key == "transformer.pos_embedding":
            state["encoding.prefix"], state["encoding.table"] = value.flatten(0, -2).split((1, value.shape[-2] - 1))
            continue
        state[name] = value.reshape(state[name].shape)
    model.load_state_dict({**model.state_dict(), **state})
    return model.eval(), tensors, said


def drawn_in(tensors: dict[str, Tensor]) -> CorruptionDraw:
    """The draws that were recorded: a random patch first, then the [mask], which overwrites it."""
    mask = tensors["in.mask"]
    places = torch.arange(mask.shape[1]).expand_as(mask)
    sources = places
    # Where none is to be another patch, there is no such draw.
    if "in.draw_random" in tensors:
        sources = torch.where(tensors["in.draw_random"], tensors["in.random_patches"].long(), places)
    sources = sources.masked_fill(tensors["in.draw_replace"], MASKED)
    chosen = mask.nonzero()[:, 1].unflatten(0, (len(mask), -1))
    return CorruptionDraw(chosen, sources.gather(1, chosen))


@pytest.mark.parametrize("file", files("mpp_full"))
def test_the_model_of_vit_pytorch(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tensors, said = built(file)
    image, mask, drawn = tensors["in.image"], tensors["in.mask"], drawn_in(tensors)
    assert drawn.chosen.shape[1] == math.ceil(said["mask_prob"] * mask.shape[1])
    monkeypatch.setattr(Corruption, "draw", lambda *_: [drawn])
    rows, layout = model.prepare(image)
    bare = layout.patches_only()
    channels = image.shape[1]
    head = model.head
    assert isinstance(head, MaskedPatchesHead)
    hidden = apply_corruption(rows, head.mask_token, [drawn], bare)
    assert_close(hidden, channel_first(tensors["out.masked_pixels"], channels))
    if "out.patch_embeddings" in tensors:
        assert_close(model.patch_embed(hidden, layout), tensors["out.patch_embeddings"])
    (output,) = model(image)
    assert torch.equal(output["patches"], drawn.chosen)
    logits = tensors["out.logits"]
    assert_close(output["values"], logits.gather(1, drawn.chosen.unsqueeze(-1).expand(-1, -1, logits.shape[-1])))
    labels, _ = labels_and_loss(image, logits, mask, said)
    task = make_task("masked_patches", model.config)
    total, units = task.loss([output], {"patches": labels.flatten()}, layout)
    assert units == int(mask.sum())
    assert_close(total / units, tensors["out.loss"])
    # Of ours, gradients are those of their loss: all chosen patches count alike.
    (total / units).backward()
    ours = head.fc.weight.grad
    every = head.fc(model.through(model.embed(hidden, layout), layout)[:, 1:])
    (theirs,) = torch.autograd.grad(F.cross_entropy(every[mask], labels[mask]), [head.fc.weight])
    assert ours is not None
    assert (ours - theirs).norm() <= 1e-4 * theirs.norm()


@pytest.mark.parametrize("file", files("mpp_paper"))
def test_the_targets_in_the_papers_words(file: str) -> None:
    tensors, said = read(file)
    image, mask, side, bits = tensors["in.image"], tensors["in.mask"], said["patch_size"], said["bits"]
    channels, rows = image.shape[1], patchify(image, side)
    means = colour_classes(rows.unflatten(-1, (channels, -1)), bits, 1.0)
    assert torch.equal(means, tensors["out.mean.labels"].long())
    cells = math.isqrt(tensors["out.down4.labels"].shape[-1])
    parts = in_cells(rows, channels, cells)
    assert_close(parts.mean(-1), tensors["out.down4.colours"])
    assert torch.equal(colour_classes(parts, bits, 1.0), tensors["out.down4.labels"].long())
    assert_close(rows, channel_first(tensors["out.l2.target"], channels))

    def task(target: str) -> Any:
        own = {"target": target, "bits": bits, "cells": cells}
        model = create_model(
            "vit_micro_patch4", patch_size=side, dim=24, depth=1, heads=2, image_size=tuple(image.shape[-2:]),
            channels=channels, task="masked_patches", head="masked_patches", head_options=own, num_classes=0,
        )  # fmt: skip
        return make_task("masked_patches", model.config)

    layout = TokenLayout.uniform(said["grid"], 1, num_prefix_tokens=1)
    chosen = mask.nonzero()[:, 1].unsqueeze(0)

    def loss(target: str, values: Tensor, patches: Tensor, true: Tensor) -> Tensor:
        output = {"values": values, "patches": patches, "sources": patches}
        total, units = task(target).loss([output], {"patches": true[0]}, layout)
        assert units == patches.numel()
        return total / units

    logits = tensors["in.mean.logits"]
    assert_close(loss("mean", logits[mask][None], chosen, means), tensors["out.mean.loss"])
    guessed = channel_first(tensors["in.l2.prediction"], channels)
    assert_close(loss("pixels", guessed[mask][None], chosen, 255 * rows), tensors["out.l2.loss"])
    first = tensors["in.down4.logits_first4"]
    four = torch.arange(first.shape[1])[None]
    assert_close(loss("cells", first[:1], four, tensors["out.down4.labels"]), tensors["out.down4.loss_first4"])
