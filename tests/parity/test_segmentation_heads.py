"""Segmenter, UperNet and EoMT against the public code (golden_families/)."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.convert import import_weights
from sightline.models import Model
from sightline.models.heads.eomt import EomtHead
from sightline.models.heads.upernet import Feature2Pyramid, PyramidDecoder
from sightline.tasks.maps import MapReader, enlarged
from sightline.tasks.mask_sets import MaskSetReader
from sightline.tasks.windows import InferenceMode, enlarged_to_window, infer, scores_of, window_starts
from sightline.tokens.layout import TokenLayout
from tests.parity.family_files import assert_close, files, read, weights


def segmenter(file: str) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    tensors, said = read(file)
    decoder = {"name": "linear"} if said["decoder_args"] is None else {"name": said["decoder"], **said["decoder_args"]}
    given = {**said["encoder"], "n_cls": said["n_cls"], "normalization": "vit", "decoder": decoder}
    return import_weights("segmenter", weights(tensors), {"net_kwargs": given}), tensors, said


SEGMENTERS = files("segmenter")


@pytest.mark.parametrize("file", SEGMENTERS)
@torch.no_grad()
def test_segmenter(file: str) -> None:
    model, tensors, said = segmenter(file)
    sides = said["encoder"]["patch_size"]
    for size in [*said["sizes"], *(["swapped"] if "in.swapped" in tensors else [])]:
        images = tensors[f"in.{size}"]
        maps = model(images)[0]
        grid = tuple(-(-side // sides) for side in images.shape[-2:])
        if f"out.{size}.encoder" in tensors:
            tokens = tensors[f"out.{size}.encoder"]
            assert_close(model.encode(*model.prepare(images)), tokens)
            layout = TokenLayout.uniform(grid, len(images), num_prefix_tokens=model.num_prefix_tokens)
            assert_close(model.head(tokens, layout)[0], tensors[f"out.{size}.masks"])
            assert_close(maps, tensors[f"out.{size}.masks"])
        if f"out.{size}.logits" in tensors:
            shown, padded = tuple(images.shape[-2:]), (grid[0] * sides, grid[1] * sides)
            logits = torch.stack(
                [MapReader().crop_to_image(enlarged(one[None], padded)[0], shown, padded) for one in maps]
            )
            assert_close(logits, tensors[f"out.{size}.logits"])
            assert_close(scores_of(model, images)[0], tensors[f"out.{size}.logits"])


SLIDES = [(file, tag) for file in SEGMENTERS for tag in read(file)[1]["slide"]]


@pytest.mark.parametrize(("file", "tag"), SLIDES)
@torch.no_grad()
def test_segmenter_slides(file: str, tag: str) -> None:
    model, tensors, said = segmenter(file)
    how, (image,) = said["slide"][tag], tensors[f"in.slide.{tag}"]
    window, stride = how["window_size"], how["window_stride"]
    resized = enlarged_to_window(image, window)
    if f"resized.slide.{tag}" in tensors:
        assert_close(resized[None], tensors[f"resized.slide.{tag}"])
    rows, cols = (window_starts(side, window, stride) for side in resized.shape[-2:])
    assert tensors[f"index.slide.{tag}.anchors"].tolist() == [[y, x] for y in rows for x in cols]
    for name, flip in (("probs", False), ("probs_flip", True)):
        if f"out.slide.{tag}.{name}" in tensors:
            inference = InferenceMode("segmenter", window=window, stride=stride, flip=flip)
            found = infer(model, image, inference, size=tuple(how["ori_shape"]))
            assert_close(found.exp(), tensors[f"out.slide.{tag}.{name}"])


@pytest.mark.parametrize("file", files("upernet"))
@torch.no_grad()
def test_upernet(file: str) -> None:
    tensors, said = read(file)
    neck = Feature2Pyramid(said["embed_dim"], said["rescales"]).eval()
    neck.load_state_dict(weights(tensors, "neck."))
    head = PyramidDecoder(said["embed_dim"], said["channels"], said["num_classes"], said["pool_scales"]).eval()
    # Their pooled branches are sequences that begin with the pooling itself.
    theirs = weights(tensors, "decode_head.")
    head.load_state_dict({re.sub(r"^(psp_modules\.\d+)\.1\.", r"\1.", name): one for name, one in theirs.items()})
    for grid in said["grids"]:
        maps = [tensors[f"in.{grid}.{level}"] for level in range(4)]
        # Beside a map of another size, as in a pack.
        beside = [torch.randn(1, said["embed_dim"], 3, 7) for _ in range(4)]
        levels = neck([[one, other] for one, other in zip(maps, beside, strict=True)])
        for level in range(4):
            if f"out.{grid}.neck.{level}" in tensors:
                assert_close(levels[level][0], tensors[f"out.{grid}.neck.{level}"])
        assert_close(head.pooled(levels[3])[0], tensors[f"out.{grid}.psp"])
        logits = head(levels)[0]
        assert_close(logits, tensors[f"out.{grid}.logits"])
        if f"out.{grid}.upsampled" in tensors:
            large = tensors[f"out.{grid}.upsampled"]
            assert_close(enlarged(logits, tuple(large.shape[-2:])), large)


def eomt(file: str) -> tuple[Model, dict[str, Tensor], dict[str, Any]]:
    tensors, said = read(file)
    given = {name: said[name] for name in ("img_size", "num_heads", "num_blocks", "masked_attn_enabled")}
    # As the Lightning module that is published names them.
    state = {f"network.{name}": one for name, one in weights(tensors).items()}
    state["criterion.empty_weight"] = torch.ones(said["num_classes"] + 1)
    return import_weights("eomt", state, given), tensors, said


@pytest.mark.parametrize("file", files("eomt"))
@pytest.mark.parametrize("packed", [False, True])
@torch.no_grad()
def test_eomt(file: str, packed: bool) -> None:
    model, tensors, said = eomt(file)
    head, theirs = model.head, weights(tensors, "encoder.")
    assert isinstance(head, EomtHead)
    image = (tensors["in.x"] - theirs["pixel_mean"]) / theirs["pixel_std"]
    hidden: list[list[Tensor]] = []
    given = head._hidden

    def keep(*arguments: Any) -> list[Tensor] | None:
        made = given(*arguments)
        assert made is not None
        hidden.append(made)
        return made

    head._hidden = keep  # type: ignore[method-assign]
    patch = said["patch_size"]
    outputs = model([torch.randn(3, 2 * patch, patch), image[0]]) if packed else model(image)
    found = outputs[-1]
    every = [*found.get("earlier_masks", torch.empty(1, 0))[0], found["masks"][0]]
    classes = [*found.get("earlier_classes", torch.empty(1, 0))[0], found["classes"][0]]
    assert len(every) == len([key for key in tensors if key.startswith("out.mask_logits.")])
    for block, (masks, logits) in enumerate(zip(every, classes, strict=True)):
        assert_close(masks[None], tensors[f"out.mask_logits.{block}"])
        assert_close(logits[None], tensors[f"out.class_logits.{block}"])
    assert len(hidden) == len([key for key in tensors if key.startswith("mask.")])
    for block, values in enumerate(hidden):
        allowed = tensors[f"mask.{block}"]
        ours = torch.ones_like(allowed)
        ours[:, : model.num_prefix_tokens + said["num_q"]] = values[-1][:, 0] == 0
        assert torch.equal(ours, allowed)
    # Of some block: where all masks reach everywhere nothing would be tried.
    assert not hidden or not all(tensors[f"mask.{block}"].all() for block in range(len(hidden)))
    one = MaskSetReader().each(outputs)[-1]
    assert_close(MaskSetReader().scores(one, tuple(said["img_size"]))[None], tensors["out.semantic"])
