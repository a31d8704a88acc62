"""Masked patch prediction under every encoding: in a pack as alone, gradients too; saved, counted, looked into."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline import create_model, list_encodings
from sightline.analysis.memory import estimate_memory
from sightline.models import Model
from sightline.tasks.base import task_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import GRADIENTS, PATCH, gradients
from tests.contract.randomise import randomise_parameters

GRIDS = [Grid(3, 5), Grid(7, 2), Grid(1, 4), Grid(5, 3)]
SEEDS = [17, -5, 2**62, 3]
ORDERS = [[0, 1, 2, 3], [2, 3, 1, 0]]
ENCODINGS = [*list_encodings(), "rope_axial+learned_1d"]


# Name -> fields of the model, of families whose patches stay patches.
FAMILIES = {
    "axial": {"architecture": "axial"},
    "hybrid": {"embedder": "resnet", "embedder_options": {"layers": [], "width_factor": 0.5}},
    "flexible": {"embedder": "flexible", "embedder_options": {"base": 6}},
}


def built(encoding: str, prefix: bool = True, parts: dict | None = None, **own: object) -> Model:
    torch.manual_seed(0)
    tokens = {"class_token": True, "num_registers": 2} if prefix else {}
    model = create_model(
        "vit_micro_patch4", encoding=encoding, head="masked_patches", head_options=dict(own), task="masked_patches",
        num_classes=0, dim=96, depth=2, image_size=(24, 32), pool="mean", **tokens, **(parts or {}),
    )  # fmt: skip
    return randomise_parameters(model)


def loss_of(model: Model, layout: TokenLayout, rows: Tensor, true: list[Tensor]) -> Tensor:
    outputs = model(rows, layout=layout)
    total, units = task_of(model).loss(outputs, {"patches": torch.cat(true)}, layout)
    assert units == sum(-(-segment.patches // 2) for segment in layout.segments)
    return total


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("prefix", [True, False], ids=["prefix", "none"])
def test_in_training_a_pack_is_its_images(encoding: str, prefix: bool) -> None:
    """The same are hidden, the same is said of them, and the loss of the pack has the sum of their gradients."""
    is_its_images(built(encoding, prefix, bits=1).train())


@pytest.mark.parametrize("mask_in", ["embedding", "pixels"])
@pytest.mark.parametrize("family", FAMILIES)
def test_of_each_family_too(family: str, mask_in: str) -> None:
    is_its_images(built("rope_axial+learned_1d", False, FAMILIES[family], bits=1, mask_in=mask_in).train())


def is_its_images(model: Model) -> None:
    count = model.num_prefix_tokens
    rows = [torch.randn(1, grid.cells, 3 * PATCH**2) for grid in GRIDS]
    true = [torch.randint(0, 8, (grid.cells,)) for grid in GRIDS]
    losses = []
    for number, grid in enumerate(GRIDS):
        layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=count).with_seeds([SEEDS[number]])
        losses.append(loss_of(model, layout, rows[number], [true[number]]))
    torch.stack(losses).sum().backward()
    expected = gradients(model)
    assert expected["head.mask_token"].abs().max() > 1e-4
    for order in ORDERS:
        layout = TokenLayout.packed([GRIDS[number] for number in order], num_prefix_tokens=count)
        layout = layout.with_seeds([SEEDS[number] for number in order])
        loss = loss_of(model, layout, torch.cat([rows[one] for one in order], dim=1), [true[one] for one in order])
        assert loss.item() == pytest.approx(torch.stack(losses).sum().item(), rel=1e-4)
        loss.backward()
        found = gradients(model)
        assert found.keys() == expected.keys()
        least = 1e-6 * max(one.norm() for one in expected.values())
        for name, theirs in expected.items():
            assert (found[name] - theirs).norm() <= GRADIENTS * theirs.norm() + least, name


@pytest.mark.parametrize("encoding", ["lookhere_90", "rope_axial+learned_1d", "rpe_learned"])
def test_every_part_learns(encoding: str) -> None:
    model = built(encoding, target="cells", bits=1, cells=2).train()
    layout = TokenLayout.packed(GRIDS, num_prefix_tokens=model.num_prefix_tokens).with_seeds(SEEDS)
    cells = sum(grid.cells for grid in GRIDS)
    true = [torch.randint(0, 8, (cells, 4))]
    loss_of(model, layout, torch.randn(1, cells, 3 * PATCH**2), true).backward()
    assert {name for name, one in model.named_parameters() if one.grad is None} == set()


@pytest.mark.parametrize("target", ["mean", "cells", "pixels"])
def test_its_memory_is_counted(target) -> None:
    model = built("rope_axial", target=target)
    expected = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert estimate_memory(model.config, (24, 32), training=True).parameters == expected
