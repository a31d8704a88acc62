"""Masked patch prediction: its targets and loss by hand, one draw for every way to a batch, and whole runs."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from sightline import create_model
from sightline.cli.app import main
from sightline.data.batch import collate_packed, collate_uniform
from sightline.data.loader import Collator, SampleSpec
from sightline.data.open import open_source
from sightline.data.source import Example
from sightline.data.targets import Crop, Label
from sightline.hub.load import load_model
from sightline.metrics.base import metrics_of
from sightline.tasks.base import make_task, predict_batch, task_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.tiny import log_lines, tiny_config, train

TARGETS = ["mean", "cells", "pixels"]
TASK = tiny_config(task="masked_patches", images=128, checkpoint_every=64, encoding="rope_axial+learned_1d")


def model_of(target="mean", encoding="lookhere_90", own=None, **options):
    torch.manual_seed(0)
    options = {"depth": 2, "dim": 48, "heads": 4, "num_registers": 1, "class_token": True, **options}
    model = create_model(
        "vit_micro_patch4", encoding=encoding, head="masked_patches", task="masked_patches", num_classes=0,
        image_size=16, head_options={"target": target, "cells": 2, **(own or {})}, **options,
    )  # fmt: skip
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def examples(sizes):
    draws = np.random.default_rng(0)
    return [Example(draws.integers(0, 256, (*size, 3), dtype=np.uint8), Label(0)) for size in sizes]


def pixel_loss(target, image, patch, values):
    """Of one patch of an image, in loops: values are what the head said of it."""
    row, column = divmod(patch, image.shape[1] // 4)
    pixels = image[4 * row : 4 * row + 4, 4 * column : 4 * column + 4].astype(np.int64)
    if target == "pixels":
        true = pixels.transpose(2, 0, 1).reshape(-1) / 255
        return float(((values.numpy() - true) ** 2).mean())

    def entropy(logits, part):
        label = 0
        for channel in range(3):
            mean = part[..., channel].mean() / 255
            label += max(int(np.ceil(8 * mean)) - 1, 0) * 8**channel
        return float(-logits.log_softmax(0)[label])

    if target == "mean":
        return entropy(values, pixels)
    cells = [pixels[y : y + 2, x : x + 2] for y in (0, 2) for x in (0, 2)]
    return float(np.mean([entropy(one, cell) for one, cell in zip(values, cells, strict=True)]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", ["uniform", "packed", "dropped"])
def test_the_loss_by_hand(target, way):
    model, task = model_of(target), make_task("masked_patches", model_of(target).config)
    sizes = [(12, 20)] * 2 if way == "uniform" else [(12, 20), (8, 28)]
    some = examples(sizes)
    rows, grids = zip(*(model.image_rows(one.image) for one in some), strict=True)
    kept = [None, np.array([1, 2, 5, 6, 11])] if way == "dropped" else [None, None]
    inputs, layout = (collate_uniform if way == "uniform" else collate_packed)(
        rows, grids, kept, model.num_prefix_tokens
    )
    layout = layout.with_seeds([11, 22])
    outputs = model(inputs.float() / 255, layout=layout)
    targets = task.targets(some)
    total, units = task.loss(outputs, targets, layout)
    each = task.split_outputs(outputs, layout)
    said = [
        pixel_loss(target, example.image, int(patch), values.detach())
        for example, one in zip(some, each, strict=True)
        for patch, values in zip(one["patches"], one["values"], strict=True)
    ]
    assert units == len(said) == (16 if way == "uniform" else 15 if way == "packed" else 8 + 3)
    assert total.item() == pytest.approx(sum(said), rel=1e-5)
    assert np.std(said) > 1e-3
    if way == "dropped":
        assert {int(one) for one in each[1]["patches"]} <= {1, 2, 5, 6, 11}
    # Those that stayed as they were count like all others.
    kinds = torch.cat([one["sources"] == one["patches"] for one in each])
    if way == "uniform":
        assert kinds.any()
        losses, _ = task.each_patch(outputs, targets, layout)
        assert losses[kinds].sum().item() > 0


@pytest.mark.parametrize("mask_in", ["embedding", "pixels"])
def test_what_is_hidden_is_not_seen(mask_in):
    """No pixel of it changes anything that is said, of another patch every one does."""
    model = model_of(own={"masked": 1.0, "random": 0.0, "mask_in": mask_in})
    rows = torch.randn(1, 15, 48)
    layout = TokenLayout.uniform(Grid(3, 5), 1, num_prefix_tokens=2)
    (before,) = model(rows, layout=layout)
    hidden = before["patches"][0]
    seen = next(number for number in range(15) if number not in hidden.tolist())
    changed = rows.clone()
    changed[:, hidden] += 5.0
    assert torch.equal(model(changed, layout=layout)[0]["values"], before["values"])
    changed = rows.clone()
    changed[:, seen] += 5.0
    assert (model(changed, layout=layout)[0]["values"] - before["values"]).abs().max() > 1e-3


def test_batches_and_packs_of_one_plan_hide_the_same():
    model, source = model_of(), open_source("scenes")
    task = task_of(model)
    planned = [SampleSpec(index, 2, (16, 16), 16) for index in range(5)]
    said = []
    for arrange in (collate_uniform, collate_packed):
        make = Collator(source, "train", model.image_rows, task.targets, arrange, model.num_prefix_tokens, seed=7)
        batch = make(planned)
        outputs = predict_batch(model.train(), batch)
        total, units = task.loss(outputs, batch.targets, batch.layout)
        said.append((task.split_outputs(outputs, batch.layout), total.item(), units))
    for one, other in zip(said[0][0], said[1][0], strict=True):
        assert torch.equal(one["patches"], other["patches"])
        assert torch.equal(one["sources"], other["sources"])
        assert torch.allclose(one["values"], other["values"], atol=2e-5)
    assert said[0][1] == pytest.approx(said[1][1], rel=1e-5)
    assert said[0][2] == said[1][2] == 5 * 8


def test_measured_by_hand():
    model = model_of()
    task = task_of(model)
    some = examples([(12, 20)] * 6)
    inputs, layout = collate_uniform([model.image_rows(one.image)[0] for one in some], [Grid(3, 5)] * 6, [None] * 6, 2)
    layout = layout.with_seeds(list(range(6)))
    outputs = [{name: one.detach() for name, one in model(inputs.float() / 255, layout=layout)[0].items()}]
    targets = task.targets(some)
    batch = make_batch(inputs, layout, targets)
    (metric,) = metrics_of(task)
    metric.update(outputs, batch)
    losses, right = task.each_patch(outputs, targets, layout)
    rows = {row.metric: row for row in metric.rows()}
    assert list(rows) == ["patch_loss", "patch_accuracy"]
    assert rows["patch_loss"].value == pytest.approx(float(losses.mean()), rel=1e-6)
    assert rows["patch_accuracy"].value == pytest.approx(float(right.mean()))
    low, high = rows["patch_loss"].interval
    assert low < rows["patch_loss"].value < high
    assert rows["patch_loss"].count == 6
    # In two parts, as ranks have them, it is the same.
    halves = []
    for part in (slice(0, 2), slice(2, 6)):
        own = TokenLayout.uniform(Grid(3, 5), part.stop - part.start, num_prefix_tokens=2)
        half = type(metric)(task)
        cut = [{name: one[part] for name, one in outputs[0].items()}]
        half.update(cut, make_batch(inputs[part], own, task.targets(some[part])))
        other = type(metric)(task)
        other.restore(half.state())
        halves.append(other)
    halves[0].merge(halves[1])
    assert halves[0].rows() == metric.rows()


def make_batch(inputs, layout, targets):
    from sightline.data.batch import Batch

    names = ["x"] * layout.images
    return Batch(inputs, layout, targets, torch.arange(layout.images), names, [{}] * layout.images)


def test_pictures_show_what_was_seen_what_was_said_and_the_image():
    model = model_of("pixels", own={"masked": 1.0, "random": 0.0})
    task, (example,) = task_of(model), examples([(12, 20)])
    rows, grid = model.image_rows(example.image)
    inputs, layout = collate_uniform([rows], [grid], [None], 2)
    outputs = [{name: one.detach() for name, one in model(inputs.float() / 255, layout=layout)[0].items()}]
    output = task.split_outputs(outputs, layout)[0]
    seen, true, said = task.comparison_images(output, {}, 0, example.image)
    assert np.array_equal(np.asarray(true), example.image)
    hidden = np.zeros((3, 5), bool)
    hidden.flat[output["patches"].numpy()] = True
    hidden = hidden.repeat(4, 0).repeat(4, 1)
    assert (np.asarray(seen)[hidden] == 128).all()
    for picture in (seen, said):
        assert np.array_equal(np.asarray(picture)[~hidden], example.image[~hidden])
    assert not np.array_equal(np.asarray(said)[hidden], example.image[hidden])
    (whole,) = task.pictures(task.decode(output, Crop((0, 0, 12, 20), (12, 20))), example.image).values()
    assert whole.size == (3 * 20 + 2 * 2, 12)
    answer = task.to_json(task.decode(output, Crop((0, 0, 12, 20), (12, 20))), (12, 20), 3)
    assert (answer["corrupted"], answer["masked"], len(answer["patches"])) == (8, 8, 3)
    json.dumps(answer)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("masked") / "run"
    train(dataclasses.replace(TASK, validation=None), out)
    return out


def test_a_classifier_begins_with_its_trunk(trained, tmp_path, capsys):
    before = load_model(trained)
    words = ["--images", "64", "--threads", "1", "--precision=float32", "--optimizer.lr=1e-9"]
    out = tmp_path / "tuned"
    encoding = ["--encoding", "rope_axial+learned_1d"]
    assert main(["train", "--data", "digits", "--init-from", str(trained), "--out", str(out), *encoding, *words]) == 0
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "; new: " in line]
    assert all(name in said for name in ("head.weight", "head.bias", "head.mask_token", "head.fc.weight"))
    model = load_model(out)
    assert (model.config.task, model.config.head, model.config.num_classes) == ("classification", "linear", 10)
    ours, theirs = model.state_dict(), before.state_dict()
    for name in ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "cls_token", "norm.weight"):
        assert torch.allclose(ours[name], theirs[name], atol=1e-6), name
    assert not any("mask" in name for name in ours)


@pytest.mark.slow
def test_its_loss_falls(tmp_path):
    """Towards what the commonest classes alone would give, within some steps."""
    train(tiny_config(task="masked_patches", images=1600), tmp_path / "run")
    losses = [json.loads(line)["loss"] for line in log_lines(tmp_path / "run")]
    assert losses[0] == pytest.approx(6.24, abs=0.3)
    assert sum(losses[-5:]) / 5 < losses[0] - 2
