"""Training on packs: the same weights each time and wherever it was killed, and a budget that is what it says."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from sightline.data.config import PackingConfig
from sightline.data.open import open_source
from sightline.data.packing import padded_length
from sightline.hub.load import read_config_record
from sightline.models.flops import training_flops
from sightline.tasks.base import predict_batch, task_class
from sightline.training.plan import DataState, training_plan
from sightline.training.setup import build_model, resolve, task_options
from tests.batches import kept_of
from tests.tiny import EVENTFUL, MODEL, KillAt, killed, log_lines, tiny_config, train, weights

PACKING = PackingConfig(tokens=512, resolutions=(6, 24), drop="beta", drop_options={"mean": 0.4})
# All that a step may hang on, in two passes over the data.
PACKED = dataclasses.replace(EVENTFUL, packing=PACKING, checkpoint_every=200)
CPU = torch.device("cpu")


def planned(config):
    source = open_source(config.data)
    resolved = resolve(config, source, CPU)
    model = build_model(resolved, source)
    task = task_class(resolved.task)(model.config, task_options(resolved)).bind(source, config.data)
    return training_plan(resolved, model.config, source), model, task


def batches(config, first=0, position=None):
    plan, model, task = planned(config)
    return ((step, batch) for step, (batch,) in plan.batches(model.image_rows, task, first, position=position))


def shown(config, first=0, position=None):
    """What each step sees, pixels too."""
    return [
        (
            step,
            batch.indices.tolist(),
            [segment.grid for segment in batch.layout.segments],
            [one.tolist() for one in kept_of(batch)],
            (batch.inputs.shape, batch.inputs.sum().item()),
        )
        for step, batch in batches(config, first, position)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "workers"), [(15, 0), (33, 2)])
def test_killed_in_a_pass_and_in_the_next(step, workers, undisturbed, tmp_path):
    config = dataclasses.replace(PACKED, workers=workers)
    killed(train, config, tmp_path / "a", observe=KillAt(step))
    assert 0 < read_config_record(tmp_path / "a" / "checkpoint")["training"]["step"] <= step
    train(config, tmp_path / "a", resume=True)
    assert (weights(tmp_path / "a"), log_lines(tmp_path / "a")) == undisturbed(PACKED)


@pytest.mark.slow
def test_the_same_ids_sizes_drops_and_pixels_from_any_step_with_any_workers():
    whole = shown(PACKED)
    assert len({step.epoch for step, *_ in whole}) == 2
    assert [step.number for step, *_ in whole] == list(range(len(whole)))
    for first, workers in ((3, 0), (20, 2), (len(whole), 0)):
        assert shown(dataclasses.replace(PACKED, workers=workers), first) == whole[first:]
        # Also from where a checkpoint says that the plan stood, as it is written and read.
        position = whole[min(first, len(whole) - 1)][0].position
        again = DataState.of(json.loads(json.dumps(position.as_record())))
        assert again == position
        assert shown(PACKED, first, position=again) == whole[first:]
    assert len({step.position.place.seen for step, *_ in whole}) > 1
    assert shown(dataclasses.replace(PACKED, seed=1))[0][1:] != whole[0][1:]


def test_every_image_is_shown_once_a_pass_and_counted():
    source = open_source("digits")
    counts = [(step.before.images, indices, step.after.images) for step, indices, *_ in shown(PACKED)]
    seen = [index for _, indices, _ in counts for index in indices]
    assert len(seen) == PACKED.images == counts[-1][2]
    assert {seen.count(index) for index in range(source.length("train"))} == {1, 2}
    assert all(after - before == len(indices) for before, indices, after in counts)


def test_a_pack_is_never_too_long_and_costs_what_its_images_cost():
    config = dataclasses.replace(PACKED, packing=dataclasses.replace(PACKING, most_images=9))
    vit = planned(config)[1].config
    for step, _, _, kept, (shape, _) in shown(config):
        lengths = [len(one) for one in kept]
        assert shape == (1, sum(lengths), 3 * vit.patch_size**2)
        # Prefix tokens take room too.
        assert sum(lengths) + len(lengths) <= 512
        assert len(lengths) <= 9
        assert step.after.tokens - step.before.tokens == sum(lengths) + len(lengths)
        assert step.after.flops - step.before.flops == training_flops(vit, lengths)


def test_the_loss_is_the_mean_over_the_images_of_a_pack(tmp_path):
    """Whatever their sizes: not over tokens, and not over packs; also that of a step of a run."""
    config = dataclasses.replace(PACKED, model_options=dict(MODEL), precision="float32", images=100)
    plan, model, task = planned(config)
    _, (batch,) = next(plan.batches(model.image_rows, task))
    assert len({len(one) for one in kept_of(batch)}) > 1
    logits, labels = predict_batch(model.eval(), batch), batch.targets["labels"]
    whole, units = task.loss(logits, batch.targets, batch.layout)
    assert units == len(batch)
    alone = [
        task.loss(logits[one : one + 1], {"labels": labels[one : one + 1]}, batch.layout) for one in range(len(batch))
    ]
    assert {count for _, count in alone} == {1}
    mean = torch.stack([loss for loss, _ in alone]).mean()
    assert torch.allclose(whole / units, mean, rtol=1e-6)
    train(config, tmp_path / "a")
    assert json.loads(log_lines(tmp_path / "a")[0])["loss"] == pytest.approx(mean.item(), rel=1e-5)


def test_uniform_and_packed_are_the_same_run_where_all_images_are_alike(tmp_path):
    """One size, nothing dropped, as many images a step: the packed path gives the uniform one's losses."""
    uniform = tiny_config(images=128, batch_size=16, data="scenes", encoding="rope_axial")
    packing = PackingConfig(tokens=16 * 17, resolutions=(16, 16), aspect="square", algorithm="first_fit")
    train(uniform, tmp_path / "a")
    train(dataclasses.replace(uniform, packing=packing), tmp_path / "b")
    losses = [[json.loads(line)["loss"] for line in log_lines(tmp_path / run)] for run in ("a", "b")]
    assert len(losses[0]) == len(losses[1]) == 8
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_fixed_lengths_change_nothing_but_the_shape(tmp_path):
    """Padding slots are there, and a step is that of the pack without them."""
    config = tiny_config(packing=dataclasses.replace(PACKING, tokens=200), images=96, encoding="lookhere_90")
    padded = dataclasses.replace(config, packing=dataclasses.replace(config.packing, padded=(150, 192, 256)))
    shapes = []
    for run in (config, padded):
        plan, model, task = planned(run)
        model.blocks[0].register_forward_hook(lambda _, given, __: shapes.append(given[0].shape[1]))
        for _, (batch,) in plan.batches(model.image_rows, task):
            predict_batch(model, batch)
    half = len(shapes) // 2
    assert shapes[half:] == [padded_length(slots, (150, 192, 256)) for slots in shapes[:half]]
    assert shapes[half:] != shapes[:half]
    train(config, tmp_path / "a")
    train(padded, tmp_path / "b")
    losses = [[json.loads(line)["loss"] for line in log_lines(tmp_path / run)] for run in ("a", "b")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
