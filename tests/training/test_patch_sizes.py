"""The sizes of images and patches of each step: functions of the seed and the step alone, and counted."""

from __future__ import annotations

import pytest
import torch

from sightline.hub.load import load_model
from sightline.models.flops import training_flops
from sightline.tasks.base import task_class
from sightline.training.plan import training_plan
from sightline.training.setup import build_model, open_training_data, resolve, task_options
from tests.tiny import train
from tests.training.test_goes_on import DRAWN, DRAWN_PACKED, GROWING


def resolved(config):
    source = open_training_data(config)
    return resolve(config, source, torch.device("cpu")), source


def batches_of(config, **options):
    config, source = resolved(config)
    model = build_model(config, source)
    task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
    plan = training_plan(config, model.config, source)
    return model, [(step, batch) for step, (batch,) in plan.batches(model.image_rows, task, **options)]


@pytest.mark.parametrize("config", [DRAWN, DRAWN_PACKED])
def test_every_batch_has_one_patch_size_and_its_cost_is_counted(config):
    model, batches = batches_of(config)
    sides, before = [], (0, 0, 0)
    for step, batch in batches:
        side = round((batch.inputs.shape[-1] / 3) ** 0.5)
        sides.append(side)
        assert step.before == before
        before = step.after
        patches = [one.patches for one in batch.layout.segments for _ in range(batch.layout.rows)]
        tokens = sum(patches) + len(batch) * model.num_prefix_tokens
        assert before[1] - step.before[1] == tokens
        assert before[2] - step.before[2] == training_flops(model.config.replace(patch_size=side, fit="pad"), patches)
        if config is DRAWN:
            assert batch.layout.segments[0].grid == (24 // side, 24 // side)
    assert set(sides) == {8, 6, 4}
    assert before[0] == 76


def test_the_kernel_that_was_learnt_is_saved(tmp_path):
    """Whatever the last patch size was."""
    train(DRAWN, tmp_path / "run")
    model = load_model(tmp_path / "run")
    assert model.patch_embed.proj.weight.shape == (48, 3 * 8**2)
    images = torch.randn(2, 3, 24, 24)
    for side in (8, 4, 6):
        model.set_patch_size(side)
        assert torch.isfinite(model(images)).all()


def test_the_kernel_learns_through_its_resize():
    """The gradient of the base kernel is that of the resized one, pulled back."""
    model, batches = batches_of(DRAWN)
    seen = set()
    for _, batch in batches:
        model.zero_grad()
        rows = batch.inputs.float() / 255
        if rows.shape[-1] in seen:
            continue
        seen.add(rows.shape[-1])
        model(rows, layout=batch.layout).square().sum().backward()
        gradient = model.patch_embed.proj.weight.grad.clone()
        assert gradient.abs().max() > 0
        size = (round((rows.shape[-1] / 3) ** 0.5),) * 2
        leaf = model.patch_embed.kernel(size).detach().requires_grad_()
        tokens = torch.nn.functional.linear(rows, leaf, model.patch_embed.proj.bias)
        embedded = batch.layout.join(tokens, model.cls_token[0])
        logits = model.head(model.pool(model.norm(model.blocks(embedded, batch.layout, model.encoding)), batch.layout))
        logits.square().sum().backward()
        (pulled,) = torch.autograd.grad(model.patch_embed.kernel(size), model.patch_embed.proj.weight, leaf.grad)
        assert (pulled - gradient).norm() <= 1e-4 * gradient.norm()
    assert len(seen) == 3


def test_the_size_of_every_step_of_a_run_that_grows():
    model, batches = batches_of(GROWING)
    seen, before = [], (0, 0, 0)
    for step, batch in batches:
        (segment,) = batch.layout.segments
        seen.append((segment.grid.rows * 4, len(batch)))
        assert step.before == before
        before = step.after
        assert batch.inputs.shape[:2] == (len(batch), segment.grid.cells)
    assert seen == [(8, 8)] * 3 + [(16, 8)] * 2 + [(24, 8), (24, 4)]
    patches = [side**2 // 16 for side, count in seen for _ in range(count)]
    prefix = model.config.num_prefix_tokens
    assert before == (52, sum(patches) + 52 * prefix, sum(training_flops(model.config, [one]) for one in patches))
