"""Attacks: what they move by hand and by finite differences, and that nothing leaves the ball, whatever the batch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.attention import RotationTensors
from sightline.data.batch import Batch, collate_packed, collate_uniform
from sightline.evaluation.measures.attacks import (
    Attack,
    attacked,
    epsilon_ball,
    gradient_of,
    input_gradients_only,
    random_start,
)
from sightline.models import Model, block, create_model
from sightline.tasks.base import task_of
from sightline.tasks.classification import Loss
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import patchify
from tests.batches import labelled
from tests.contract.randomise import randomise_parameters

FGSM, STEPS = Attack("fgsm"), Attack("pgd", steps=10, share=0.25, random=True)
ENCODINGS = ("rope_mixed", "lookhere_45+learned_2d")
# Not square, and of 3 x 5 patches, so that a swapped axis shows.
GRID = Grid(3, 5)


def tiny(encoding: str = "lookhere_90", **options) -> Model:
    options = {"depth": 2, "dim": 48, "heads": 4, "num_classes": 6, "image_size": 16, **options}
    return randomise_parameters(create_model("vit_micro_patch4", encoding=encoding, **options))


def images(count: int, grid: Grid = GRID, seed: int = 0) -> Tensor:
    """uint8 rows of noise, 0 and 255 among them."""
    draws = np.random.default_rng(seed)
    pixels = draws.integers(0, 256, (count, 3, 4 * grid.rows, 4 * grid.cols), dtype=np.uint8)
    pixels[:, :, :2], pixels[:, :, 2:4] = 0, 255
    return patchify(torch.from_numpy(pixels), 4)


def batch_of(rows: Tensor, grid: Grid = GRID, prefix: int = 1, labels=None) -> Batch:
    inputs, layout = collate_uniform(list(rows), [grid] * len(rows), [None] * len(rows), prefix)
    return replace(labelled(labels or [number % 6 for number in range(len(rows))]), inputs=inputs, layout=layout)


def moved_by(model: Model, batch: Batch, attack: Attack, epsilon: float, loss: Loss = "ce", **options) -> Tensor:
    pixels = batch.inputs.float()
    gradient = gradient_of(model, task_of(model), batch, loss)
    with input_gradients_only(model, recomputes=False):
        return attacked(attack, pixels, epsilon, epsilon_ball(pixels, epsilon), gradient, **options)


def turned(x: Tensor, rotation: RotationTensors) -> Tensor:
    """`rotate` computes in float32 by rule, of which differences this small cannot be told: the same in float64."""
    cos, sin = rotation.cos, rotation.sin
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


@pytest.mark.parametrize("loss", ["ce", "bce"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_its_gradient_is_that_of_finite_differences_through_the_normalisation(encoding, loss, monkeypatch):
    monkeypatch.setattr(block, "rotate", turned)
    model = tiny(encoding, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3)).double().eval()
    batch = batch_of(images(2).double())
    task, pixels = task_of(model), batch.inputs
    slope = gradient_of(model, task, batch, loss)(pixels)
    assert slope.shape == pixels.shape
    assert slope.abs().min() > 0

    def loss_at(values: Tensor) -> Tensor:
        x = values.unflatten(-1, (3, 16)) / 255
        x = (x - x.new_tensor(model.config.mean).unsqueeze(-1)) / x.new_tensor(model.config.std).unsqueeze(-1)
        with torch.no_grad():
            logits = model(x.flatten(-2), layout=batch.layout)
        truth = torch.nn.functional.one_hot(batch.targets["labels"], 6).double()
        if loss == "ce":
            return -(truth * logits.log_softmax(1)).sum()
        return -(truth * logits.sigmoid().log() + (1 - truth) * (-logits).sigmoid().log()).sum()

    step = 1e-3
    draws = np.random.default_rng(1)
    for place in zip(*(draws.integers(0, size, 12) for size in pixels.shape), strict=True):
        change = torch.zeros_like(pixels)
        change[place] = step
        found = (loss_at(pixels + change) - loss_at(pixels - change)) / (2 * step)
        torch.testing.assert_close(slope[place], found, rtol=1e-6, atol=1e-10)


def exactly_within(moved: Tensor, pixels: Tensor, epsilon: int) -> bool:
    """In [0, 1] and in the ball, as real numbers."""
    pairs = zip(moved.flatten().tolist(), pixels.flatten().tolist(), strict=True)
    share = Fraction(epsilon, 255)
    return all(
        0 <= Fraction(one) / 255 <= 1 and abs(Fraction(one) - Fraction(other)) / 255 <= share for one, other in pairs
    )


@pytest.mark.parametrize("attack", [FGSM, STEPS], ids=lambda one: one.name)
@pytest.mark.parametrize("epsilon", [1, 3])
def test_nothing_leaves_the_values_of_pixels_or_the_ball(attack, epsilon):
    model, whole = tiny(), batch_of(images(3))
    # Fitted images have values between, at which a sum is rounded.
    draws = torch.from_numpy(np.random.default_rng(2).random(whole.inputs.shape, dtype=np.float32))
    fitted = (255 * draws).clamp(0, 255)
    fitted[0, 0, :4] = torch.tensor([0, 1e-30, 255, 127.99999])
    for batch in (whole, replace(whole, inputs=fitted)):
        pixels = batch.inputs.float()
        start = random_start(batch) if attack.random else None
        moved = moved_by(model, batch, attack, epsilon, start=start)
        assert exactly_within(moved, pixels, epsilon)
        assert float((moved - pixels).abs().mean()) > 0.5 * epsilon
        if not attack.random and batch is whole:
            steps = (moved - pixels).unique().tolist()
            assert {-epsilon, epsilon} < set(steps) <= set(range(-epsilon, epsilon + 1))


def test_a_random_start_is_the_images_own_in_any_batch_and_pack():
    grids = [Grid(2, 3), Grid(1, 5), Grid(2, 2)]
    rows = [images(1, grid, number)[0] for number, grid in enumerate(grids)]
    inputs, layout = collate_packed(rows, grids, [None] * 3, 1, padded=[20])
    pack = replace(labelled([0, 1, 2]), inputs=inputs, layout=layout)
    start = random_start(pack)
    assert start.shape == inputs.shape == (1, 17, 48)
    assert start.abs().max() <= 1
    assert (start[:, 15:] == 0).all()
    alone = replace(batch_of(rows[1][None], grids[1]), indices=torch.tensor([1]))
    assert torch.equal(random_start(alone)[0], start[0, 6:11])
    two = batch_of(images(2))
    assert not torch.equal(*random_start(two))
    # Over the whole ball.
    assert 0.45 < float(random_start(two).abs().mean()) < 0.55


def test_a_pack_is_attacked_as_its_images_are():
    model, grids = tiny(), [Grid(2, 3), Grid(3, 5)]
    rows = [images(1, grid, number)[0] for number, grid in enumerate(grids)]
    inputs, layout = collate_packed(rows, grids, [None] * 2, 1, padded=[32])
    pack = replace(labelled([3, 4]), inputs=inputs, layout=layout)
    found = moved_by(model, pack, FGSM, 3)
    assert torch.equal(found[0, 21:], inputs[0, 21:].float())
    for begin, row, grid, label in ((0, rows[0], grids[0], 3), (6, rows[1], grids[1], 4)):
        alone = moved_by(model, batch_of(row[None], grid, labels=[label]), FGSM, 3)
        assert torch.equal(found[0, begin : begin + grid.cells], alone[0])


def test_the_model_is_left_as_it_was():
    model = tiny(drop_path=0.9).train()
    model.blocks[0].eval()
    model.cls_token.requires_grad_(False)
    before = [(one.requires_grad, one.grad) for one in model.parameters()]
    modes = [part.training for part in model.modules()]
    assert torch.equal(moved_by(model, batch_of(images(1)), FGSM, 3), moved_by(model, batch_of(images(1)), FGSM, 3))
    with pytest.raises(StopIteration), input_gradients_only(model, recomputes=True):
        next(iter(() if model.blocks.activation_checkpointing else (1,)))
    assert [(one.requires_grad, one.grad) for one in model.parameters()] == before
    assert before[0][1] is None
    assert [part.training for part in model.modules()] == modes
    assert not model.blocks.activation_checkpointing
