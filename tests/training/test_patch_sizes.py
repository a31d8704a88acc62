"""A patch size drawn for each step: a function of the seed and the step, for any worker, rank and continuation."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from sightline.data.config import PackingConfig, PatchSizes
from sightline.errors import InputError, StoppedError
from sightline.hub.load import load_model
from sightline.models.flops import training_flops
from sightline.tasks.base import task_class
from sightline.training.config import OptimizerConfig
from sightline.training.plan import EpochPlan, SizeSchedule, resolve_length, training_plan
from sightline.training.setup import build_model, open_training_data, resolve, task_options
from tests.ranks import together
from tests.tiny import MODEL, TRAINING, digest, log_lines, tiny_config, train, weights
from tests.training.test_ranks import SGD, alone, assert_alike, run

FLEXIBLE = {**MODEL, "embedder": "flexible", "embedder_options": {"base": 8}}
DRAWN = tiny_config(
    data="scenes", resolution=24, model_options=FLEXIBLE, patch_sizes=PatchSizes((8, 6, 4), (1.0, 2.0, 1.0)), images=76,
    batch_size=8, checkpoint_every=8, encoding="rope_axial+learned_1d", optimizer=OptimizerConfig(ema=0.5),
)  # fmt: skip
PACKED = dataclasses.replace(
    DRAWN,
    data="digits",
    packing=PackingConfig(tokens=64, resolutions=(8, 20), aspect="square", drop="constant", drop_options={"drop": 0.2}),
)


def resolved(config):
    source = open_training_data(config)
    return resolve(config, source, torch.device("cpu")), source


def batches_of(config, **options):
    config, source = resolved(config)
    model = build_model(config, source)
    task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
    plan = training_plan(config, model.config, source)
    return model, [(step, batch) for step, (batch,) in plan.batches(model.image_rows, task, **options)]


@pytest.mark.parametrize("config", [DRAWN, PACKED])
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


def test_a_plan_begins_anywhere():
    config, source = resolved(DRAWN)
    plan = training_plan(config, build_model(config, source).config, source)
    whole = list(plan.steps(0))
    for first in (1, 4, 9):
        later = list(plan.steps(first))
        assert [step for step, _ in later] == [step for step, _ in whole[first:]]
        assert [images for _, images in later] == [images for _, images in whole[first:]]
    assert SizeSchedule.of(config, plan.model).spent(EpochPlan.of(config, None), len(whole)) == whole[-1][0].after


@pytest.mark.parametrize("budget", ["tokens", "flops"])
def test_a_budget_is_met_on_average(budget):
    config, source = resolved(DRAWN)
    model = build_model(config, source).config
    whole = SizeSchedule.of(config, model).spent(EpochPlan(64_000, 8, None), 8_000)
    asked = dataclasses.replace(config, images=None, **{budget: getattr(whole, budget)})
    assert resolve_length(asked, model, None).images == pytest.approx(64_000, rel=0.03)


@pytest.mark.parametrize("config", [DRAWN, PACKED])
def test_a_run_goes_on_bit_by_bit(config, tmp_path):
    train(config, tmp_path / "whole")
    asked = iter(range(100))
    with pytest.raises(StoppedError):
        train(config, tmp_path / "parts", stop=lambda: next(asked) >= 2)
    train(dataclasses.replace(config, workers=2), tmp_path / "parts", resume=True)
    assert log_lines(tmp_path / "whole") == log_lines(tmp_path / "parts")
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts")
    ends = [digest(tmp_path / one / "checkpoint" / TRAINING) for one in ("whole", "parts")]
    assert ends[0] == ends[1]
    # The kernel that was learnt is the one that is saved, whatever the last patch size was.
    model = load_model(tmp_path / "whole")
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_options": MODEL}, "patch_sizes: embedder patches has patches of one size"),
        ({"patch_sizes": PatchSizes((8, 5))}, "patch_size 5: does not divide the model's images of 24x24 pixels"),
        ({"model_options": {**FLEXIBLE, "embedder_options": {"base": 8, "sizes": [4, 8]}}}, "patch_sizes.sizes 6: is"),
    ],
)
def test_what_cannot_be_is_said_before_the_first_step(changes, said, tmp_path):
    with pytest.raises(InputError, match=said):
        train(dataclasses.replace(DRAWN, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("config", [DRAWN, PACKED])
def test_two_ranks_train_as_one(config, tmp_path):
    """All ranks of a step have its patch size."""
    config = dataclasses.replace(config, images=33, optimizer=SGD)
    alone(config, tmp_path / "one")
    assert together(2, run, config, tmp_path / "two") == [0, 1]
    assert_alike(tmp_path / "one", tmp_path / "two")
