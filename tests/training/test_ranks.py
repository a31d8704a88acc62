"""Two ranks train what one trains: the same losses and weights, also where their parts are uneven, or one has none."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from sightline.data.batch import normalize
from sightline.data.config import PackingConfig
from sightline.data.loader import SampleSpec
from sightline.data.targets import IGNORE
from sightline.distributed.ranks import Ranks
from sightline.errors import NonFiniteError, RanksError, StorageError, UnreadableDataError
from sightline.io.tensors import full_tensor
from sightline.models.create import model_config
from sightline.tasks.base import task_class
from sightline.training.batch_norm import JointBatchNorms
from sightline.training.config import OptimizerConfig, TrainConfig
from sightline.training.loop import train_step
from sightline.training.parallel import DDPModel, FSDPModel, ParallelModel, balanced_partition
from sightline.training.plan import as_trained_on, training_plan
from sightline.training.setup import build_model, open_training_data, resolve, task_options
from sightline.training.state import TrainState
from tests.data.dense_folders import masks
from tests.ranks import together
from tests.tiny import MODEL, log_lines, pictures, tiny_config, train, tree
from tests.training.test_goes_on import DRAWN, DRAWN_PACKED

SGD = OptimizerConfig(lr=0.1, name="sgd", clip=0.5)
UNEVEN = tiny_config(images=99, batch_size=33, optimizer=SGD, checkpoint_every=33)
# Of the last step one rank has no image.
IDLE = tiny_config(images=65, batch_size=32, optimizer=SGD, checkpoint_every=33)
CHANCE = tiny_config(
    images=64,
    optimizer=SGD,
    model_options={**MODEL, "depth": 2, "drop_path": 0.4, "dropout": 0.3},
    encoding="rope_mixed",
)
PACKED = TrainConfig(
    data="scenes", model_options=dict(MODEL), resolution=16, images=60, precision="float32", validation=None,
    packing=PackingConfig(
        tokens=300, resolutions=(8, 24), drop="constant", drop_options={"drop": 0.3}, most_images=7
    ),
    optimizer=SGD, encoding="rope_axial+learned_1d",
)  # fmt: skip


MASKED = dataclasses.replace(IDLE, task="masked_patches")
CELLS = dataclasses.replace(MASKED, task_options={"target": "cells", "cells": 2, "bits": 2})
PIXELS = dataclasses.replace(PACKED, task="masked_patches", task_options={"target": "pixels"})


def run(ranks: Ranks, config, out, options=None):
    torch.set_num_threads(1)
    train(config, out, ranks=ranks, device="cpu", **(options or {}))
    return ranks.rank


def assert_alike(first, second, tolerance=1e-5, weights=None):
    """The same steps with the same losses, and weights that differ by so much of their norm (or by `weights`)."""
    most = tolerance if weights is None else weights
    records = [[json.loads(line) for line in log_lines(run)] for run in (first, second)]
    assert len(records[0]) == len(records[1]) > 1
    for one, other in zip(*records, strict=True):
        assert other.pop("loss") == pytest.approx(one.pop("loss"), rel=tolerance)
        assert one == other
    found = [load_file(run / "checkpoint" / "model.safetensors") for run in (first, second)]
    assert found[0].keys() == found[1].keys()
    for name, weight in found[0].items():
        apart = float((found[1][name] - weight).double().norm())
        assert apart <= most * float(weight.double().norm()) + 1e-7, name


# Of the last step one rank has no pair.
PAIRS = tiny_config(
    data="scenes:pairs", task="contrastive", images=33, batch_size=32, optimizer=SGD, checkpoint_every=33,
    task_options={
        "embed_dim": 16, "vocab_size": 300, "chunk": 7,
        "text": {"dim": 16, "depth": 1, "heads": 2, "length": 10, "causal": True},
    },
)  # fmt: skip
SIGMOID = dataclasses.replace(
    PAIRS, task_options={**PAIRS.task_options, "pair_loss": "sigmoid"}, batch_size=None, encoding="rope_axial",
    packing=PackingConfig(tokens=300, resolutions=(8, 24), most_images=7),
)  # fmt: skip


TOGETHER = {
    "idle": IDLE,
    "packed": PACKED,
    "pairs": PAIRS,
    "masked": MASKED,
    "sigmoid pairs, packed": SIGMOID,
    "uneven": UNEVEN,
    "chance": CHANCE,
    "masked cells": CELLS,
    "masked pixels": PIXELS,
    # All ranks of a step have its patch size.
    "patch sizes": dataclasses.replace(DRAWN, images=33, optimizer=SGD),
    "patch sizes, packed": dataclasses.replace(DRAWN_PACKED, images=33, optimizer=SGD),
}


@pytest.mark.parametrize(
    "name", [*list(TOGETHER)[:3], *(pytest.param(name, marks=pytest.mark.slow) for name in list(TOGETHER)[3:])]
)
def test_two_ranks_train_as_one(name, tmp_path):
    train(TOGETHER[name], tmp_path / "one")
    assert together(2, run, TOGETHER[name], tmp_path / "two") == [0, 1]
    # Gradients of biases are sums over pairs that nearly cancel; in float64 all are compared below.
    assert_alike(tmp_path / "one", tmp_path / "two", weights=1e-3 if "pairs" in name else None)
    assert sorted(tree(tmp_path / "one")) == sorted(tree(tmp_path / "two"))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("uneven", 2),
        ("packed", 2),
        ("masked", 3),
        ("masked pixels", 3),
        pytest.param("uneven", 5, marks=pytest.mark.slow),
    ],
)
def test_a_step_in_parts_is_the_step(name, parts, tmp_path):
    train(TOGETHER[name], tmp_path / "one")
    train(dataclasses.replace(TOGETHER[name], accumulate=parts, recompute=True), tmp_path / "parts")
    assert_alike(tmp_path / "one", tmp_path / "parts")


def test_parts_without_a_label_count_nothing(tmp_path):
    """A third of the images, each a part of its own, have no pixel with a class."""
    root = masks(tmp_path / "data", splits=("train",))
    size = Image.open(root / "masks" / "train" / "deep" / "1.png").size
    Image.new("L", size, IGNORE).save(root / "masks" / "train" / "deep" / "1.png")
    config = tiny_config(data=f"masks:{root}", task="segmentation", images=9, batch_size=3, checkpoint_every=9)
    config = dataclasses.replace(config, optimizer=SGD)
    train(config, tmp_path / "one")
    train(dataclasses.replace(config, accumulate=3), tmp_path / "parts")
    assert_alike(tmp_path / "one", tmp_path / "parts")


class InDouble(torch.nn.Module):
    """As `parallel.wrapped` gives outputs, in float64."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch, precision):
        rows = normalize(batch.inputs, self.model.config.mean, self.model.config.std)
        texts = batch.targets.get("texts")
        return self.model(rows.to(self.model.anchor.dtype), layout=batch.layout, texts=texts)


def gradients(ranks: Ranks, config, sharing="ddp"):
    """The gradient of the first step by name in float64, and its norm."""
    torch.set_num_threads(1)
    source = as_trained_on(open_training_data(config), config)
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, clip=None))
    config = resolve(config, source, torch.device("cpu"))
    model = build_model(config, source).double().train()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.normal_(0, 0.2, generator=generator)
    task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
    state = TrainState(model, None, None, config, source, ranks)
    plan = training_plan(config, model.config, source)
    step, batches = next(plan.batches(model.image_rows, task, ranks=ranks))
    forward = InDouble(model)
    if ranks.size == 1:
        holder = ParallelModel(forward)
    else:
        norms = JointBatchNorms(model, ranks)
        holder = DDPModel(forward, norms) if sharing == "ddp" else FSDPModel(forward, norms, ranks)
    # It moves nothing, and gradients are not clipped.
    state.optimizer = torch.optim.SGD([{"params": list(model.parameters()), "lr_scale": 1.0}], lr=0.0)
    value = float(train_step(state, task, holder, batches, 0.0, step)[0])
    found = {name: one.grad for name, one in model.named_parameters()}
    return value, {name: full_tensor(one).double().numpy() for name, one in found.items() if one is not None}


@pytest.mark.parametrize(
    ("name", "sharing"),
    [
        ("uneven", "ddp"),
        ("packed", "fsdp"),
        ("pairs", "fsdp"),
        pytest.param("sigmoid pairs, packed", "ddp", marks=pytest.mark.slow),
        pytest.param("chance", "ddp", marks=pytest.mark.slow),
        pytest.param("chance", "fsdp", marks=pytest.mark.slow),
    ],
)
def test_one_gradient_of_all_ranks(name, sharing):
    config, tolerance = TOGETHER[name], 1e-10
    value, alone = gradients(Ranks(), config)
    for other, found in together(2, gradients, config, sharing):
        assert other == pytest.approx(value, rel=tolerance)
        assert found.keys() == alone.keys()
        # Angles and tables of positions are float32 whatever the model is in.
        near = {name: max(tolerance, 1e-6) if "encoding." in name else tolerance for name in alone}
        rest = [name for name in alone if near[name] == tolerance]
        total, whole = (sum(float((some[name] ** 2).sum()) for name in rest) ** 0.5 for some in (alone, found))
        assert whole == pytest.approx(total, rel=tolerance)
        for name, gradient in alone.items():
            assert np.linalg.norm(found[name] - gradient) <= near[name] * np.linalg.norm(gradient) + 1e-15, name
            assert np.linalg.norm(gradient) > 0, name


@pytest.mark.parametrize("name", ["pairs", "sigmoid pairs, packed"])
def test_features_of_parts_give_the_gradient_of_the_step(name):
    """GradCache: the features of all parts are computed first, and each part again with their gradient."""
    value, whole = gradients(Ranks(), TOGETHER[name])
    other, parts = gradients(Ranks(), dataclasses.replace(TOGETHER[name], accumulate=3))
    assert other == pytest.approx(value, rel=1e-10)
    assert parts.keys() == whole.keys()
    for name, gradient in whole.items():
        # Tables of positions are float32 whatever the model is in.
        near = 1e-6 if "encoding." in name else 1e-10
        assert np.abs(parts[name] - gradient).max() <= near * np.abs(gradient).max(), name


def stop_after(ranks: Ranks, config, out, steps, options=None):
    """The second rank alone is asked to stop."""
    asked = iter(range(100))
    return run(ranks, config, out, {"stop": lambda: ranks.rank == 1 and next(asked) >= steps - 1, **(options or {})})


def fails_alone(ranks: Ranks, out):
    """The first rank alone cannot have the folder."""
    if ranks.is_main:
        out.write_bytes(b"")
    return run(ranks, UNEVEN, out)


def test_a_fault_of_one_ends_the_others(tmp_path):
    own, other = together(2, fails_alone, tmp_path / "a")
    assert isinstance(own, StorageError)
    assert isinstance(other, RanksError)


def test_what_is_not_finite_ends_all(tmp_path):
    said = together(2, run, tiny_config(images=320, optimizer=OptimizerConfig(lr=1e30, warmup=0.0)), tmp_path / "a")
    assert [type(one) for one in said] == [NonFiniteError, NonFiniteError]


def damaged(tmp_path):
    data = pictures(tmp_path / "data", count=8)
    file = sorted((tmp_path / "data" / "train").rglob("*.png"))[3]
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 2 // 3])
    return tiny_config(data=data, images=None, epochs=2.0, batch_size=8, optimizer=SGD, checkpoint_every=8)


def test_an_image_that_cannot_be_read_ends_all(tmp_path):
    said = together(2, run, damaged(tmp_path), tmp_path / "a")
    assert {type(one) for one in said} == {UnreadableDataError, RanksError}


def test_what_one_leaves_out_all_count(tmp_path):
    config = dataclasses.replace(damaged(tmp_path), skip_unreadable=1)
    train(config, tmp_path / "one")
    together(2, run, config, tmp_path / "two")
    assert_alike(tmp_path / "one", tmp_path / "two")
    left = [(tmp_path / one / "checkpoint" / "left_out.jsonl").read_text() for one in ("one", "two")]
    assert left[0] == left[1] != ""


@pytest.mark.parametrize("parts", [1, 2, 4, 7])
def test_parts_cost_alike(parts):
    """Every image once, in its order; no part costs more than another by more than one image."""
    draws = np.random.default_rng(0)
    model = model_config("vit_micro_patch4")
    planned = [SampleSpec(number, 0, (4, 4), int(draws.integers(1, 400))) for number in range(40)]
    found = balanced_partition(planned, parts, model)
    assert len(found) == parts
    assert sorted(one.index for part in found for one in part) == list(range(40))
    assert all([one.index for one in part] == sorted(one.index for one in part) for part in found)
    tokens = [sum(one.tokens for one in part) for part in found]
    assert max(tokens) - min(tokens) <= 60 * (parts > 1)
    assert [len(part) for part in balanced_partition(planned[:2], 4, model)] == [1, 1, 0, 0]
