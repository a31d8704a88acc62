"""What configurations refuse: each error names the key and the value, of every room."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sightline.data.augmentations import make_augmentations
from sightline.data.config import MixingConfig, PackingConfig, PatchSizes
from sightline.data.sizes import (
    MOST_FRAMES,
    BetaDrop,
    ConstantDrop,
    FrameSampling,
    LengthDrop,
    ResolutionSampling,
    ScheduledDrop,
)
from sightline.encodings.base import TrunkShape
from sightline.errors import InputError
from sightline.evaluation.cascade import CascadeConfig
from sightline.evaluation.measure import EvaluateConfig
from sightline.io.config import build_config
from sightline.models.config import ViTConfig
from sightline.models.corruption import Corruption
from sightline.models.head import make_head
from sightline.tasks.classification import ClassificationOptions
from sightline.tasks.detection import DetectionOptions
from sightline.tasks.segmentation import SegmentationOptions
from sightline.tasks.windows import InferenceMode
from sightline.tokens.grid import Grid
from sightline.training.config import OptimizerConfig, TrainConfig, ValidationConfig

SHAPE = {"depth": 2, "heads": 3, "dim": 48, "train_grid": Grid(4, 4), "num_prefix_tokens": 1}


def augment(name: str) -> Callable[..., Any]:
    return lambda **options: make_augmentations({name: options})


def head(name: str) -> Callable[..., Any]:
    sizes = {"depth": 3, "dim": 48, "heads": 4, "patch_size": 4, "image_size": 16, "num_classes": 5}
    return lambda **options: make_head(ViTConfig(**sizes, head=name, head_options=options))


def run(**given: Any) -> TrainConfig:
    return build_config(TrainConfig, given, "train")


def measuring(**given: Any) -> EvaluateConfig:
    return EvaluateConfig((16,), **given)


def looking(**given: Any) -> CascadeConfig:
    return CascadeConfig((4, 9), **given)


def shape(**changes: Any) -> TrunkShape:
    return TrunkShape(**{**SHAPE, **changes})


@pytest.mark.parametrize(
    ("make", "given", "field"),
    [
        (FrameSampling, {"count": 0}, "count"),
        (FrameSampling, {"count": MOST_FRAMES + 1}, "count"),
        (FrameSampling, {"count": 2, "stride": 0}, "stride"),
        (ResolutionSampling, {"low": 0, "high": 10}, "low"),
        (ResolutionSampling, {"low": 20, "high": 10}, "low"),
        (ResolutionSampling, {"measure": "sides"}, "measure"),
        (ResolutionSampling, {"distribution": "uniforn"}, "distribution"),
        (ConstantDrop, {"drop": 1.5}, "drop"),
        (BetaDrop, {"mean": 0.9}, "mean"),
        (BetaDrop, {"most": 1.8}, "most"),
        (LengthDrop, {"shortest": 10, "longest": 10}, "shortest"),
        (ScheduledDrop, {"width": 0.0}, "width"),
        (PackingConfig, {"tokens": 0}, "tokens"),
        (PackingConfig, {"padded": [2048, 1024]}, "padded"),
        (PackingConfig, {"padded": [4096, 4096]}, "padded"),
        (PackingConfig, {"resolutions": [16]}, "resolutions"),
        (PackingConfig, {"aspect": "wide"}, "aspect"),
        (PackingConfig, {"algorithm": "first_fitt"}, "algorithm"),
        (PackingConfig, {"resolutions": [40, 8]}, "resolutions"),
        (PackingConfig, {"most_tokens": 4096}, "most_tokens"),
        (PackingConfig, {"drop": "bata"}, "drop"),
        (PackingConfig, {"drop_options": {"drop": 0.5}}, "drop_options"),
        (MixingConfig, {"mixup": -0.1}, "mixup"),
        (MixingConfig, {"cutmix": math.nan}, "cutmix"),
        (MixingConfig, {"mixup": 1.0, "chance": 1.5}, "chance"),
        (PatchSizes, {"sizes": []}, "sizes"),
        (PatchSizes, {"sizes": [8, 8]}, "sizes"),
        (PatchSizes, {"sizes": [8, 4], "chances": [1.0]}, "chances"),
        (augment("three_augment"), {"treshold": 3}, "treshold"),
        (augment("three_augment"), {"threshold": 300}, "threshold"),
        (augment("three_augment"), {"radius": [2.0, 0.1]}, "radius"),
        (augment("colour_jitter"), {"hue": 0.6}, "hue"),
        (augment("rand_augment"), {"magnitude": 31}, "magnitude"),
        (augment("rand_augment"), {"operations": 0}, "operations"),
        (augment("random_erasing"), {"fill": "white"}, "fill"),
        (augment("random_erasing"), {"mean": [0.5]}, "mean"),
        (shape, {"dim": 49}, "dim"),
        (shape, {"depth": 0}, "depth"),
        (shape, {"num_prefix_tokens": -1}, "num_prefix_tokens"),
        (Corruption, {"share": 1.5}, "share"),
        (Corruption, {"masked": -0.1}, "masked"),
        (Corruption, {"masked": 0.8, "random": 0.3}, "masked"),
        (head("segmenter"), {"layers": 0}, "layers"),
        (head("segmenter"), {"dim": 10, "heads": 3}, "heads"),
        (head("upernet"), {"layers": [0, 1]}, "layers"),
        (head("upernet"), {"layers": [3, 2, 1, 0]}, "layers"),
        (head("upernet"), {"rescales": [4, 2, 1]}, "rescales"),
        (head("upernet"), {"pools": []}, "pools"),
        (head("eomt"), {"queries": 0}, "queries"),
        (head("eomt"), {"blocks": 4}, "blocks"),
        (head("fcos"), {"hidden": -1}, "hidden"),
        (head("simple_pyramid"), {"scales": []}, "scales"),
        (head("owlvit"), {"query_dim": 0}, "query_dim"),
        (head("detr_queries"), {"queries": 0}, "queries"),
        (head("masked_patches"), {"target": "colours"}, "target"),
        (head("masked_patches"), {"target": "cells", "cells": 3}, "cells"),
        (head("masked_patches"), {"bits": 9}, "bits"),
        (head("masked_patches"), {"mask_in": "tokens"}, "mask_in"),
        (head("masked_patches"), {"share": 2}, "share"),
        (head("masked_patches"), {"shares": 0.5}, "shares"),
        (ClassificationOptions, {"loss": "mse"}, "loss"),
        (ClassificationOptions, {"label_smoothing": 1.0}, "label_smoothing"),
        (DetectionOptions, {"threshold": 2.0}, "threshold"),
        (DetectionOptions, {"nms": -0.1}, "nms"),
        (DetectionOptions, {"most": 0}, "most"),
        (DetectionOptions, {"radius": 0.0}, "radius"),
        (DetectionOptions, {"box_weight": -1.0}, "box_weight"),
        (SegmentationOptions, {"background_bias": "much"}, "background_bias"),
        (InferenceMode, {"kind": "slide"}, "kind"),
        (InferenceMode, {"kind": "mmseg", "window": 0}, "window"),
        (InferenceMode, {"kind": "mmseg", "window": 16, "stride": 17}, "stride"),
        (InferenceMode, {"window": 16}, "window"),
        (InferenceMode, {"scales": ()}, "scales"),
        (TrainConfig, {"images": 3, "epochs": 1.0}, "images"),
        (TrainConfig, {"model": "a", "init_from": "b"}, "model"),
        (TrainConfig, {"frozen": True}, "frozen"),
        (TrainConfig, {"images": 0}, "images"),
        (TrainConfig, {"tokens": 0}, "tokens"),
        (TrainConfig, {"flops": 0.0}, "flops"),
        (TrainConfig, {"epochs": 0.0}, "epochs"),
        (TrainConfig, {"batch_size": 0}, "batch_size"),
        (TrainConfig, {"accumulate": 33}, "accumulate"),
        (TrainConfig, {"repeats": 2, "packing": PackingConfig()}, "repeats"),
        (TrainConfig, {"progressive": (8,), "packing": PackingConfig()}, "progressive"),
        (TrainConfig, {"frames": 0}, "frames"),
        (TrainConfig, {"seed": -1}, "seed"),
        (TrainConfig, {"workers": -1}, "workers"),
        (TrainConfig, {"keep_last": 0}, "keep_last"),
        (TrainConfig, {"skip_unreadable": "some"}, "skip_unreadable"),
        (TrainConfig, {"parts": "simpel"}, "parts"),
        (TrainConfig, {"parts": 0.0}, "parts"),
        (TrainConfig, {"flip": 1.5}, "flip"),
        (TrainConfig, {"interpolation": "bicubik"}, "interpolation"),
        (TrainConfig, {"sharing": "fsdpp"}, "sharing"),
        (TrainConfig, {"loss": "mse"}, "loss"),
        (TrainConfig, {"precision": "float16"}, "precision"),
        (TrainConfig, {"label_smoothing": 1.0}, "label_smoothing"),
        (OptimizerConfig, {"lr": 0.0}, "lr"),
        (OptimizerConfig, {"weight_decay": -0.1}, "weight_decay"),
        (OptimizerConfig, {"warmup": 1.0}, "warmup"),
        (OptimizerConfig, {"cooldown": -1}, "cooldown"),
        (OptimizerConfig, {"clip": 0.0}, "clip"),
        (OptimizerConfig, {"ema": 1.0}, "ema"),
        (OptimizerConfig, {"name": "adamv"}, "name"),
        (OptimizerConfig, {"schedule": "cosin"}, "schedule"),
        (OptimizerConfig, {"layer_decay": 1.0}, "layer_decay"),
        (OptimizerConfig, {"head_decay": -1.0}, "head_decay"),
        (OptimizerConfig, {"name": "sgd", "momentum": 1.0}, "momentum"),
        (OptimizerConfig, {"momentum": 0.5}, "momentum"),
        (OptimizerConfig, {"schedule": "rsqrt", "timescale": 0.0}, "timescale"),
        (OptimizerConfig, {"schedule": "constant", "final_lr": 0.1}, "final_lr"),
        (ValidationConfig, {"times": 0}, "times"),
        (ValidationConfig, {"images": 0}, "images"),
        (EvaluateConfig, {"resolutions": ()}, "resolutions"),
        (measuring, {"images": 0}, "images"),
        (measuring, {"tune_images": -1}, "tune_images"),
        (measuring, {"temperature_images": 0}, "temperature_images"),
        (measuring, {"precision": "float64"}, "precision"),
        (measuring, {"knobs": "all"}, "knobs"),
        (CascadeConfig, {"budgets": ()}, "budgets"),
        (CascadeConfig, {"budgets": (4,)}, "budgets"),
        (looking, {"pair": (9, 9)}, "pair"),
        (looking, {"pair": (9, 4)}, "pair"),
        (looking, {"alphas": ()}, "alphas"),
        (looking, {"budget": 3.9}, "budget"),
        (looking, {"pair": (9, 16), "budget": 8.0}, "budget"),
        (looking, {"images": 0}, "images"),
        (looking, {"aspect": "squar"}, "aspect"),
        (looking, {"precision": "half"}, "precision"),
    ],
)
def test_a_value_is_refused_by_its_key(make: Callable[..., Any], given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        make(**given)
    assert error.value.field == field
    value = given[field]
    assert repr(error.value.value) == repr(tuple(value) if isinstance(error.value.value, tuple) else value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "given", "field", "value"),
    [
        (PackingConfig, {"padded": [1024, 0]}, "padded[1]", 0),
        (PackingConfig, {"resolutions": [16, "32"]}, "resolutions[1]", "32"),
        (PackingConfig, {"drop": "constant", "drop_options": {"rate": 1}}, "rate", 1),
        (PackingConfig, {"drop": "constant", "drop_options": {"drop": 1.5}}, "drop", 1.5),
        (PatchSizes, {"sizes": (8, 0)}, "sizes[1]", 0),
        (PatchSizes, {"sizes": (8,), "chances": (0.0,)}, "chances[0]", 0.0),
        (augment("random_erasing"), {"aspect": [0, 1]}, "aspect[0]", 0),
        (head("upernet"), {"layers": [0, 1, 2, 3]}, "layers[3]", 3),
        (head("simple_pyramid"), {"scales": [3]}, "scales", 3.0),
        (head("upernet"), {"rescales": [4, 2, 1, 3]}, "rescales", 3.0),
        (InferenceMode, {"scales": (0.0,)}, "scales[0]", 0.0),
        (EvaluateConfig, {"resolutions": (0,)}, "resolutions[0]", 0),
        (measuring, {"tuned": ("knobs",)}, "tuned[0]", "knobs"),
        (looking, {"pair": (0, 4)}, "pair[0]", 0),
        (looking, {"alphas": (0.1, 1.5)}, "alphas[1]", 1.5),
        (OptimizerConfig, {"betas": (0.9, 1.0)}, "betas[1]", 1.0),
        (TrainConfig, {"progressive": (0,)}, "progressive[0]", 0),
        (run, {"optimizer": {"lr": 0}}, "optimizer.lr", 0),
        (run, {"optimizer": {"lrr": 0}}, "optimizer.lrr", 0),
        (run, {"optimizer": {"betas": [0.9, "x"]}}, "optimizer.betas[1]", "x"),
        (run, {"optimizer": {"name": "sgd", "eps": 1e-3}}, "optimizer.eps", 1e-3),
        (run, {"packing": {"most_tokens": 4096}}, "packing.most_tokens", 4096),
        (run, {"mixing": {"cutmix": 0}}, "mixing.mixup", 0.0),
        (run, {"augment": {"colour_jitter": None}}, "augment", None),
        (run, {"augment": {"colour_jitter": {"hues": 1}}}, "hues", 1),
        (run, {"model_options": {"encoding": "none"}}, "model_options.encoding", None),
        (run, {"model_options": {"clip_frames": 4}}, "model_options.clip_frames", None),
        (run, {"model_options": {"image_size": 8}}, "model_options.image_size", None),
        (run, {"task_options": {"loss": "ce"}}, "task_options.loss", None),
    ],
)
def test_an_entry_is_refused_by_its_place(make: Any, given: dict[str, Any], field: str, value: object) -> None:
    with pytest.raises(InputError) as error:
        make(**given)
    assert (error.value.field, error.value.value) == (field, value)
