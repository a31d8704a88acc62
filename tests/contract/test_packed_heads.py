"""Every head of all tokens gives in a pack what it gives of each image alone, and its gradients, with what the trunk
does in front of it: prefix tokens, grids that are not square, padding, dropped patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline import create_model, registry
from sightline.errors import InputError
from sightline.models import Model
from sightline.models.box_head import BoxHead
from sightline.models.head import TokenHead
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import GRADIENTS, PATCH, assert_spread, gradients
from tests.contract.randomise import randomise_parameters

KINDS = registry.classes(TokenHead, "sightline.models.heads")
HEADS = sorted(KINDS)
WHOLE = [name for name in HEADS if not KINDS[name].supports_token_dropping]
OF_PARTS = [name for name in HEADS if KINDS[name].supports_token_dropping]
# Small, and more than one of what they have several of.
OPTIONS: dict[str, dict[str, Any]] = {
    "eomt": {"queries": 5, "blocks": 1},
    "segmenter": {"layers": 2, "heads": 2},
    "upernet": {"channels": 6},
    "fcos": {"hidden": 12},
    "simple_pyramid": {"channels": 6, "hidden": 6, "coarsest": True},
    "detr_queries": {"queries": 5, "layers": 2},
}
GRIDS = [Grid(3, 5), Grid(7, 2), Grid(1, 4), Grid(5, 3), Grid(3, 5)]
ORDERS = [[0, 1, 2, 3, 4], [3, 0, 4, 2, 1]]
ENCODINGS = ["lookhere_90", "rope_axial+learned_1d"]


def built(head: str, encoding: str, **more: Any) -> Model:
    """A model whose every number is random, that of batch norms too."""
    task = "detection" if issubclass(KINDS[head], BoxHead) else "segmentation"
    torch.manual_seed(0)
    model = create_model(
        "vit_micro_patch4", encoding=encoding, head=head, head_options=OPTIONS.get(head, {}), num_classes=4, task=task,
        dim=48, depth=2, heads=4, image_size=(16, 20), class_token=True, num_registers=2, pool="mean", **more,
    )  # fmt: skip
    for name, one in randomise_parameters(model).named_buffers():
        if name.endswith(("running_mean", "running_var")):
            one.uniform_(0.5, 1.5)
    return model.eval()


def pieces_of(counts: Sequence[int]) -> list[Tensor]:
    draws = torch.Generator().manual_seed(1)
    return [torch.randn(1, count, 3 * PATCH**2, generator=draws) for count in counts]


def said(output: Any) -> dict[str, Tensor]:
    return dict(output) if isinstance(output, Mapping) else {"maps": output}


def loss_of(output: dict[str, Tensor]) -> Tensor:
    """A sum of an image's own, with another weight for each number."""
    each = [one.flatten() for one in output.values() if one.requires_grad]
    return sum(((one * torch.linspace(-1, 2, len(one))).mean() for one in each), torch.zeros(()))


def check(model: Model, grids: Sequence[Grid], kept: list[Tensor] | None) -> None:
    """As alone, in two orders and with padding behind it."""
    prefix = model.num_prefix_tokens
    pieces = pieces_of([grid.cells for grid in grids] if kept is None else [len(one) for one in kept])
    alone = []
    for number, (grid, piece) in enumerate(zip(grids, pieces, strict=True)):
        layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=prefix)
        (output,) = model(piece, layout=layout if kept is None else layout.keep(kept[number][None]))
        alone.append(said(output))
        loss_of(alone[-1]).backward()
    expected = gradients(model)
    for name in alone[0]:
        assert_spread(torch.cat([one[name].detach().flatten().float() for one in alone]))
    for order, padding in zip(ORDERS, (0, 7), strict=True):
        layout = TokenLayout.packed([grids[number] for number in order], num_prefix_tokens=prefix)
        layout = layout if kept is None else layout.keep([kept[number] for number in order])
        patches = torch.cat([pieces[number] for number in order], dim=1)
        patches, layout = torch.nn.functional.pad(patches, (0, 0, 0, padding)), layout.pad_to(layout.slots + padding)
        packed = [said(one) for one in model(patches, layout=layout)]
        assert len(packed) == len(order)
        for number, one in zip(order, packed, strict=True):
            assert one.keys() == alone[number].keys()
            for name, value in one.items():
                assert value.shape == alone[number][name].shape
                assert torch.allclose(value, alone[number][name], rtol=1e-4, atol=2e-5), name
        sum((loss_of(one) for one in packed), torch.zeros(())).backward()
        found = gradients(model)
        assert found.keys() == expected.keys()
        # Of a bias of keys the gradient is nothing but rounding.
        least = 1e-6 * max(one.norm() for one in expected.values())
        for name, theirs in expected.items():
            assert (found[name] - theirs).norm() <= GRADIENTS * theirs.norm() + least, name


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("head", HEADS)
def test_whole_images(head: str, encoding: str) -> None:
    check(built(head, encoding), GRIDS, None)


@pytest.mark.parametrize("head", OF_PARTS)
def test_dropped_patches_in_any_order(head: str) -> None:
    kept = [torch.randperm(grid.cells)[: count + 2] for count, grid in enumerate(GRIDS)]
    check(built(head, "lookhere_90"), GRIDS, kept)


def test_who_needs_whole_images() -> None:
    assert WHOLE == ["eomt", "simple_pyramid", "upernet"]


@pytest.mark.parametrize("head", WHOLE)
def test_a_head_that_needs_whole_images_says_so(head: str) -> None:
    """Of a pack of which one image alone is not whole."""
    model = built(head, "lookhere_90")
    layout = TokenLayout.packed(GRIDS[:2], num_prefix_tokens=model.num_prefix_tokens)
    layout = layout.keep([torch.arange(GRIDS[0].cells), torch.arange(3)])
    with pytest.raises(InputError, match=rf"head {head}: takes whole images \(expected no token dropping"):
        model(pieces_of([GRIDS[0].cells + 3])[0], layout=layout)
