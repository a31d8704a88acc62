"""Every setting of a run has its effect on the weights, or is refused; those that only say how a run is computed or
kept change no weight."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors.torch import load_file

from sightline.data.mixing import MixingConfig
from sightline.data.packs import PackingConfig
from sightline.errors import InputError, UnreadableDataError
from sightline.recipes import list_recipes, recipe
from sightline.tasks.base import task_class
from sightline.training.config import OptimizerConfig, TrainConfig, ValidationConfig
from sightline.training.loop import train
from sightline.training.prepare import resolve
from tests.tiny import MODEL, pictures, weights

TASKS = ("classification", "segmentation", "detection", "masked_patches")
PACKING = PackingConfig(tokens=64, resolutions=(8, 16), drop="constant", drop_options={"drop": 0.2})
# A value that is not the base's; several where one alone is refused or is the same.
CHANGES = {
    "model": "vit_tiny_patch8", "model_options": MODEL | {"depth": 3}, "encoding": "alibi_2d",
    "encoding_options": {"global_slope": 0.5}, "resolution": 8, "patch_sizes": {"sizes": [2, 4]},
    "images": 8, "epochs": 1.0, "tokens": 200, "flops": 3e7, "batch_size": 2, "precision": "bfloat16", "seed": 1,
    "parts": 0.9, "flip": 1.0, "interpolation": "nearest", "augment": {"colour_jitter": {}}, "repeats": 2,
    "mixing": MixingConfig(mixup=1.0), "progressive": (8,), "loss": "ce", "label_smoothing": 0.3,
    "max_pixels": 300, "packing": PACKING,
}  # fmt: skip
# How it is computed, kept and watched; where sums are made in another order, their rounding.
NEUTRAL = {
    "accumulate": 2, "recompute": True, "checkpoint_every": 4, "keep_last": 2, "validation": ValidationConfig(times=2),
    "workers": 1, "skip_unreadable": 1,
}  # fmt: skip
ELSEWHERE = {
    "data": "what all else is of", "task": "the other cases of this file", "task_options": "below",
    "optimizer": "below", "init_from": "test_fine_tune", "frozen": "test_frozen", "frames": "test_clips",
    "frame_stride": "test_clips", "compile": "test_compiling", "sharing": "test_sharing",
}  # fmt: skip
OPTIMIZERS = {
    "lr": 0.02, "name": "lamb", "betas": (0.5, 0.5), "eps": 1e-2, "momentum": 0.3, "weight_decay": 0.9,
    "head_decay": 0.9, "layer_decay": 0.3, "schedule": "linear", "warmup": 2, "cooldown": 2, "timescale": 3.0,
    "final_lr": 1e-3, "clip": 1e-4, "ema": 0.9,
}  # fmt: skip
PACKINGS = {
    "tokens": 40, "algorithm": "best_fit", "most_images": 2, "resolutions": (12, 16), "measure": "area",
    "distribution": "low", "aspect": "square", "most_tokens": 8, "drop": None, "drop_options": {"drop": 0.5},
}  # fmt: skip
OF_TASKS = {
    "segmentation": {"head": "linear_map", "background_bias": 0.0},
    "detection": {"radius": 0.5, "class_weight": 3.0, "box_weight": 3.0},
    "masked_patches": {"target": "cells", "bits": 2, "share": 0.3, "masked": 0.1, "random": 0.05, "mask_in": "pixels"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`weights_of(config)`: SHA-256 of what a run leaves; the runs of equal configurations are made once."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def weights_of(config: TrainConfig) -> str:
        if repr(config) not in made:
            out = folder / str(len(made))
            train(config, out, device="cpu")
            made[repr(config)] = out
        return weights(made[repr(config)])

    def tensors_of(config: TrainConfig) -> dict[str, torch.Tensor]:
        weights_of(config)
        return load_file(made[repr(config)] / "checkpoint" / "model.safetensors")

    weights_of.tensors = tensors_of
    weights_of.data = pictures(folder / "data", ("a", "b"), 4)
    return weights_of


def base_config(runs, task="classification", **changes):
    data = runs.data if task == "classification" else "scenes:pairs"
    first = TrainConfig(
        data=data, task=task, model_options=MODEL | {"depth": 2}, encoding="lookhere_90", resolution=16, images=16,
        batch_size=4, precision="float32", validation=None, checkpoint_every=16, optimizer=OptimizerConfig(lr=3e-3),
    )  # fmt: skip
    return dataclasses.replace(first, **changes)


def has_effect(runs, base, **changes):
    """Whether the run that is changed so is refused, or has other weights."""
    if "epochs" in changes or "tokens" in changes or "flops" in changes:
        changes["images"] = None
    try:
        changed = runs(dataclasses.replace(base, **changes))
    except (InputError, UnreadableDataError):
        return True
    return changed != runs(base)


def test_every_setting_is_looked_at():
    fields = {one.name for one in dataclasses.fields(TrainConfig)}
    assert fields == CHANGES.keys() | NEUTRAL.keys() | ELSEWHERE.keys()
    assert {one.name for one in dataclasses.fields(OptimizerConfig)} == OPTIMIZERS.keys() | {"ema_warmup"}
    assert {one.name for one in dataclasses.fields(PackingConfig)} == PACKINGS.keys() | {"padded"}


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_of_a_classifier(name, runs):
    assert has_effect(runs, base_config(runs), **{name: CHANGES[name]})


@pytest.mark.parametrize("task", TASKS[1:])
@pytest.mark.parametrize("name", ["loss", "label_smoothing", "mixing", "batch_size", "flip", "parts", "interpolation"])
def test_a_setting_of_another_task(name, task, runs):
    assert has_effect(runs, base_config(runs, task), **{name: CHANGES[name]})


@pytest.mark.parametrize(("task", "name"), [(task, name) for task, options in OF_TASKS.items() for name in options])
def test_an_option_of_a_task(task, name, runs):
    assert has_effect(runs, base_config(runs, task), task_options={name: OF_TASKS[task][name]})


@pytest.mark.parametrize("name", ["repeats", "progressive", "images", "flip", "parts", "interpolation"])
def test_a_setting_of_a_packed_run(name, runs):
    packed = base_config(runs, packing=PACKING)
    assert has_effect(runs, packed, **{name: CHANGES[name]})


@pytest.mark.parametrize("name", PACKINGS)
def test_a_setting_of_packing(name, runs):
    packed = base_config(runs, packing=PACKING)
    beside = {"drop_options": {}} if name == "drop" else {}
    other = dataclasses.replace(PACKING, **beside, **{name: PACKINGS[name]})
    assert has_effect(runs, packed, packing=other)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("first", [{}, {"name": "sgd"}, {"schedule": "constant"}], ids=["adamw", "sgd", "constant"])
def test_a_setting_of_an_optimizer(name, first, runs):
    start = OptimizerConfig(lr=3e-3, **first)
    given = {"lr": 3e-3, **first, name: OPTIMIZERS[name]}
    try:
        other = OptimizerConfig(**given)
    except InputError:
        return
    assert has_effect(runs, base_config(runs, optimizer=start), optimizer=other)


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_changes_no_weight(name, runs):
    # Not by Adam, which makes a step of a gradient near zero, whose sign the order of a sum decides.
    base = base_config(runs, optimizer=OptimizerConfig(name="sgd", lr=0.01))
    changed = dataclasses.replace(base, **{name: NEUTRAL[name]})
    if name not in ("accumulate", "recompute"):
        assert runs(changed) == runs(base)
        return
    found, expected = runs.tensors(changed), runs.tensors(base)
    assert found.keys() == expected.keys()
    for key, one in expected.items():
        torch.testing.assert_close(found[key], one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_what_a_run_records_is_what_it_does(task, runs):
    from sightline.data.discovery import open_source
    from sightline.distributed.machine import resolve_device

    base = base_config(runs, task)
    config = resolve(base, open_source(base.data), resolve_device("cpu"))
    stored = task == "classification"
    assert (config.flip, config.interpolation) == ((0.5, "bicubic") if stored else (0.0, "bilinear"))
    assert config.parts == (0.35 if stored else 1.0)
    own = {one.name for one in dataclasses.fields(task_class(task).Options)}
    assert (config.loss, config.label_smoothing) == (("bce", 0.0) if "loss" in own else (None, None))
    packed = resolve(dataclasses.replace(base, packing=PACKING), open_source(base.data), resolve_device("cpu"))
    assert (config.batch_size, packed.batch_size) == (4, None)
    # What is recorded gives the run again.
    assert runs(config) == runs(base)


def test_recipes_record_no_loss_that_is_not_theirs():
    for name in list_recipes():
        config = recipe(name)
        own = {one.name for one in dataclasses.fields(task_class(config.task).Options)}
        assert "loss" in own or (config.loss, config.label_smoothing) == (None, None), name


@pytest.mark.parametrize(("names", "warned"), [(("arrow_left", "arrow_right"), True), (("cleft", "a"), False)])
def test_mirrored_images_of_left_and_right_are_warned_of(names, warned, tmp_path):
    data = pictures(tmp_path / "data", names, 2)
    for flip, says in ((None, warned), (0.0, False)):
        said = []
        config = TrainConfig(
            data=data,
            model_options=dict(MODEL),
            resolution=16,
            images=4,
            validation=None,
            precision="float32",
            flip=flip,
        )
        train(config, tmp_path / str(flip), device="cpu", warn=said.append)
        assert any("flip=0" in line for line in said) == says
