"""Sizes that are set one after another, beside timm's Swin itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from sightline.convert import export_weights, import_weights
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.models.architectures.swin import Swin
from tests.parity.family_files import assert_close, files, read, timm_name, weights

NAME = next(file for file in files("swin") if timm_name(file) and "cases" in read(file)[1])


@pytest.fixture
def both() -> tuple[Swin, Any]:
    """Ours and timm's with the same weights."""
    tensors, said = read(NAME)
    given = {key: value for key, value in said.items() if key not in ("cases", "blocks")}
    ours = import_weights("timm", weights(tensors), {"model": timm_name(NAME), **given})
    theirs = import_timm().create_model(timm_name(NAME), strict_img_size=False, **given).eval()
    theirs.load_state_dict(weights(tensors))
    assert isinstance(ours, Swin)
    return ours, theirs


# A window goes with the size that it was last said for, not with the size before.
SIZES: list[list[dict[str, Any]]] = [
    [{"img_size": (12, 64)}, {"img_size": (48, 64)}, {"img_size": (32, 64)}],
    [{"img_size": (48, 96), "window_size": (5, 7)}, {"img_size": (20, 20)}, {"img_size": (48, 96)}],
    [{"img_size": (64, 48), "window_ratio": 4}, {"img_size": (32, 32)}],
    [{"img_size": (36, 52), "window_size": 3, "window_ratio": 2}, {"window_ratio": 3}],
    [{"window_size": 2}],
]


@pytest.mark.parametrize("sizes", SIZES)
@torch.no_grad()
def test_one_after_another(both: tuple[Swin, Any], sizes: list[dict[str, Any]]) -> None:
    ours, theirs = both
    first = copy.deepcopy(theirs)
    for size in sizes:
        for model in both:
            model.set_input_size(**size)
        blocks = [block for layer in theirs.layers for block in layer.blocks]
        for block, there in zip(ours.blocks, blocks, strict=True):
            attn: Any = block.attn
            cut = attn.stage.cut(attn.stage.trained, shifted=attn.shifted)
            assert (tuple(cut.size), tuple(cut.shift)) == (tuple(there.window_size), tuple(there.shift_size))
        images = torch.randn(1, 3, *theirs.patch_embed.img_size, generator=torch.Generator().manual_seed(1))
        # Theirs resizes tables that it had resized; ours always those that were trained.
        once = copy.deepcopy(first)
        once.set_input_size(theirs.patch_embed.img_size, window_size=tuple(ours.blocks[0].attn.stage.options.window))
        assert_close(ours(images), once(images))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"always_partition": True}, "always_partition True: windows become the image's where it is smaller"),
        ({"window_ratio": 0}, "window_ratio"),
        ({"window_ratio": (4, 8)}, "window_ratio"),
        ({"windows": 3}, "windows"),
    ],
)
def test_what_is_not_ours_is_no_silent_argument(both: tuple[Swin, Any], given: dict[str, Any], words: str) -> None:
    before = both[0].config
    with pytest.raises((InputError, TypeError), match=words):
        both[0].set_input_size(64, **given)
    assert both[0].config == before


@pytest.mark.parametrize("size", [(32, 64), (36, 52)])
def test_gradients_are_timms(both: tuple[Swin, Any], size: tuple[int, int]) -> None:
    """Of every weight, also where windows are filled with zeros."""
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(2))
    for model in both:
        torch.nn.functional.cross_entropy(model(images), torch.tensor([1, 3])).backward()
    ours, theirs = both
    with torch.no_grad():
        for weight in ours.parameters():
            weight.copy_(weight.grad)
    # Under the names that weights have there.
    found, _ = export_weights(ours, "timm")
    for name, weight in theirs.named_parameters():
        assert weight.grad.norm() > 0, name
        assert (found[name] - weight.grad).norm() <= 1e-4 * weight.grad.norm(), name
