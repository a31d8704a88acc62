"""Every setting of a run has its effect on the weights, or is refused; those that only say how a run is computed or
kept change no weight."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch.utils._pytree import tree_leaves

from sightline import registry
from sightline.data.config import MixingConfig, PackingConfig
from sightline.data.open import open_source
from sightline.data.targets import Crop
from sightline.errors import InputError, UnreadableDataError
from sightline.evaluation.predict import predict_split
from sightline.hub.load import load_model
from sightline.io.config import build_config, merge
from sightline.models import model_config
from sightline.tasks.base import Task, make_task, task_class
from sightline.tasks.segmentation import Segmentation, SegmentationOptions
from sightline.tasks.windows import InferenceMode
from sightline.training.config import OptimizerConfig, TrainConfig, ValidationConfig
from sightline.training.setup import build_model, resolve, resolve_config
from tests.tiny import MODEL, nested, pictures, train, weights

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
    "deterministic": "test_loop",
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
# Options that change weights, under each of what they may depend on.
OF_TASKS = {
    "classification": {"loss": "ce", "label_smoothing": 0.3},
    "segmentation": {"head": "linear_map", "head_options": {}, "background_bias": 0.5},
    "detection": {
        "head": "owlvit",
        "head_options": {},
        "radius": 0.5,
        "class_weight": 3.0,
        "box_weight": 3.0,
        "side_weight": 3.0,
    },
    "masked_patches": {
        "target": "cells",
        "bits": 2,
        "cells": 2,
        "share": 0.3,
        "masked": 0.1,
        "random": 0.05,
        "mask_in": "pixels",
    },
    "contrastive": {
        "pair_loss": "sigmoid",
        "embed_dim": 24,
        "text": {"dim": 16, "depth": 1, "heads": 2, "length": 12},
        "vocab_size": 280,
        "positives": "pair",
    },
}
UNDER = {
    "classification": [{}],
    "segmentation": [{"head": head} for head in ("pix", "linear_map", "segmenter", "eomt")],
    "detection": [{"head": head} for head in ("fcos", "owlvit", "detr_queries", "simple_pyramid")],
    "masked_patches": [{"target": target} for target in ("mean", "cells", "pixels")],
    "contrastive": [{"text": {"dim": 32, "depth": 1, "heads": 2, "length": 16}}],
}
HEADS = {
    "pix": {"background_bias": 1.0},
    "linear_map": {"norm": False},
    "segmenter": {"layers": 1},
    "eomt": {"queries": 8},
    "fcos": {"hidden": 8},
    "owlvit": {"query_dim": 8},
    "detr_queries": {"queries": 4},
    "simple_pyramid": {"hidden": 8},
}
# Options of other tests: a file, the size of a chunk, and words to measure by.
APART = {"contrastive": {"tokenizer", "chunk", "names", "templates"}}
# Options that change what is said of an image, and no weight.
OF_ANSWERS = {
    "segmentation": {
        "inference": {"flip": True},
        "inference.kind": "mmseg",
        "inference.window": 8,
        "inference.stride": 4,
        "inference.scales": [1.0, 2.0],
        "inference.flip": True,
    },
    "detection": {"threshold": 0.9, "shown": 0.9, "nms": 0.0, "most": 1},
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

    def folder_of(config: TrainConfig) -> Path:
        weights_of(config)
        return made[repr(config)]

    weights_of.folder = folder_of
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


def names(error, *settings):
    """Whether a refusal names settings."""
    return all(re.search(rf"\b{one}\b", str(getattr(error, "args", "") or error.value)) for one in settings)


def taken(name, make):
    """What `make` makes, None where it is refused by the setting's name."""
    try:
        return make()
    except InputError as error:
        if not names(error, name):
            raise
        return None


def has_effect(runs, base, name, changes):
    """Whether the run that is changed so is refused by the setting's name, or has other weights."""
    if changes.keys() & {"epochs", "tokens", "flops"}:
        changes["images"] = None
    try:
        changed = taken(name, lambda: runs(dataclasses.replace(base, **changes)))
    except UnreadableDataError:
        return name == "max_pixels"
    return changed is None or changed != runs(base)


def test_every_setting_is_looked_at():
    fields = {one.name for one in dataclasses.fields(TrainConfig)}
    assert fields == CHANGES.keys() | NEUTRAL.keys() | ELSEWHERE.keys()
    assert {one.name for one in dataclasses.fields(OptimizerConfig)} == OPTIMIZERS.keys() | {"ema_warmup"}
    assert {one.name for one in dataclasses.fields(PackingConfig)} == PACKINGS.keys() | {"padded"}


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_of_a_classifier(name, runs):
    assert has_effect(runs, base_config(runs), name, {name: CHANGES[name]})


@pytest.mark.parametrize("task", TASKS[1:])
@pytest.mark.parametrize("name", ["loss", "label_smoothing", "mixing", "batch_size", "flip", "parts", "interpolation"])
def test_a_setting_of_another_task(name, task, runs):
    assert has_effect(runs, base_config(runs, task), name, {name: CHANGES[name]})


def test_every_option_of_every_task_is_looked_at():
    for task, kind in registry.classes(Task, "sightline.tasks").items():
        looked = OF_TASKS[task].keys() | OF_ANSWERS.get(task, {}).keys() | APART.get(task, set())
        fields = {one.name for one in dataclasses.fields(kind.Options)}
        if "inference" in fields:
            fields |= {f"inference.{one.name}" for one in dataclasses.fields(InferenceMode)}
        assert fields == looked, task


@pytest.mark.parametrize(
    ("task", "under", "name"),
    [(task, under, name) for task, options in OF_TASKS.items() for under in UNDER[task] for name in options],
)
def test_an_option_of_a_task(task, under, name, runs):
    value = OF_TASKS[task][name] if name != "head_options" else HEADS[under["head"]]
    base = base_config(runs, task, task_options={} if under.get(name) == value else under)
    assert has_effect(runs, base, name, {"task_options": {**under, name: value}})


@pytest.mark.parametrize(
    ("task", "option", "other", "values"),
    [
        ("detection", {"side_weight": 3.0}, "head", {"fcos": False, "simple_pyramid": False, "owlvit": True}),
        ("detection", {"radius": 3.0}, "head", {"fcos": True, "detr_queries": False, "owlvit": False}),
        ("detection", {"nms": 0.3}, "head", {"simple_pyramid": True, "detr_queries": False, "owlvit": False}),
        ("masked_patches", {"cells": 2}, "target", {"mean": False, "cells": True, "pixels": False}),
        ("masked_patches", {"bits": 2}, "target", {"mean": True, "cells": True, "pixels": False}),
        ("segmentation", {"background_bias": 1.0}, "head", {"pix": True, "linear_map": True, "eomt": False}),
        ("segmentation", {"inference": {"window": 8, "stride": 8}}, "kind", {"whole": False}),
    ],
)
def test_an_option_without_effect_is_refused_by_what_it_depends_on(task, option, other, values, runs):
    [name] = option
    for value, taken in values.items():
        beside = {} if other == "kind" else {other: value}
        config = base_config(runs, task, task_options={**beside, **option})
        source = open_source(config.data)
        if taken:
            build_model(resolve_config(config, source, torch.device("cpu")), source)
            continue
        with pytest.raises(InputError) as refused:
            build_model(resolve_config(config, source, torch.device("cpu")), source)
        assert names(refused, name, other)
        # As it is by default, it may be said.
        usual = getattr(task_class(task).Options(), name)
        said = base_config(runs, task, task_options={**beside, name: usual})
        build_model(resolve_config(said, source, torch.device("cpu")), source)


def test_a_bias_of_a_class_that_is_not_there_is_refused():
    source = SimpleNamespace(name="folder", pixel_classes=("disc", "square"))
    own = Segmentation.model_options(source, SegmentationOptions(background_bias=1.0))
    config = model_config("vit_micro_patch4", task="segmentation", **own)
    with pytest.raises(InputError) as refused:
        make_task("segmentation", config, {"background_bias": 1.0})
    assert names(refused, "background_bias")
    for usual in ({}, {"background_bias": None}):
        make_task("segmentation", config, usual)


@pytest.mark.parametrize(("task", "name"), [(task, name) for task, options in OF_ANSWERS.items() for name in options])
def test_an_option_of_answers(task, name, runs):
    """On trained weights, by what the task says of images where it is asked so."""
    for under in UNDER[task]:
        model = load_model(runs.folder(base_config(runs, task, task_options=under)))
        said = functools.partial(answers, model, task)
        given = {"threshold": 0.0, "shown": 0.0} if task == "detection" else {}
        setting = f"{name}={json.dumps(OF_ANSWERS[task][name])}"
        changed = taken(name, functools.partial(said, merge(given, nested(setting))))
        assert changed is None or changed != said(given), under


def answers(model, task, options):
    """What a task says of two scenes, and by which outputs."""
    source = open_source("scenes:pairs")
    made = make_task(task, model.config, options).bind(source, "scenes:pairs")
    [given] = predict_split(model, made, source, "test", range(2), 16)
    each, crop = made.split_outputs(given.outputs, given.batch.layout), Crop((0, 0, 16, 16), (16, 16))
    sums = [one.double().sum().item() for one in tree_leaves(each)]
    return sums, [made.to_json(made.decode(one, crop), (16, 16), 5) for one in each]


@pytest.mark.parametrize("head", ["fcos", "pix"])
def test_a_head_that_is_not_the_models_is_refused(head, runs):
    """`evaluate --task-options.head` measures the model that there is."""
    task, other = ("detection", "owlvit") if head == "fcos" else ("segmentation", "linear_map")
    model = load_model(runs.folder(base_config(runs, task, task_options={"head": head})))
    make_task(task, model.config, {"head": head})
    with pytest.raises(InputError) as refused:
        make_task(task, model.config, {"head": other})
    assert names(refused, "head", other)


@pytest.mark.parametrize("options", [{}, {"mixup": 1.0, "chance": 0.0}, {"mixup": 0.0, "cutmix": 0.0}])
def test_a_mixing_that_mixes_nothing_is_refused(options):
    with pytest.raises(InputError) as refused:
        build_config(TrainConfig, {"mixing": options}, "train")
    assert names(refused, "mixing", *list(options)[-1:])


def test_the_warm_up_of_a_mean_goes_with_it(runs):
    mean = base_config(runs, optimizer=OptimizerConfig(lr=3e-3, ema=0.9))
    other = dataclasses.replace(mean.optimizer, ema_warmup=False)
    assert has_effect(runs, mean, "ema_warmup", {"optimizer": other})
    # None is as usual where there is a mean.
    for decay, said, done in ((None, None, None), (None, False, None), (None, True, None), (0.9, None, True)):
        config = base_config(runs, optimizer=OptimizerConfig(lr=3e-3, ema=decay, ema_warmup=said))
        assert resolve(config, open_source(config.data), torch.device("cpu")).optimizer.ema_warmup is done


@pytest.mark.parametrize("name", ["repeats", "progressive", "images", "flip", "parts", "interpolation"])
def test_a_setting_of_a_packed_run(name, runs):
    packed = base_config(runs, packing=PACKING)
    assert has_effect(runs, packed, name, {name: CHANGES[name]})


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("first", [{}, {"name": "sgd"}, {"schedule": "constant"}], ids=["adamw", "sgd", "constant"])
def test_a_setting_of_an_optimizer(name, first, runs):
    start = OptimizerConfig(lr=3e-3, **first)
    given = {"lr": 3e-3, **first, name: OPTIMIZERS[name]}
    other = taken(name, lambda: OptimizerConfig(**given))
    assert other is None or has_effect(runs, base_config(runs, optimizer=start), name, {"optimizer": other})


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
