"""What configurations refuse: each error names the key and the value, of every room."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sightline.data.augmenting import make_augmentations
from sightline.data.config import MixingConfig, PackingConfig, PatchSizes
from sightline.data.frames import MOST_FRAMES, FrameSampling
from sightline.data.sampling import BetaDrop, ConstantDrop, LengthDrop, ResolutionSampling, ScheduledDrop
from sightline.encodings.base import TrunkShape
from sightline.errors import InputError
from sightline.models.config import ViTConfig
from sightline.models.corruption import Corruption
from sightline.models.head import make_head
from sightline.tasks.classification import ClassificationOptions
from sightline.tasks.detection import DetectionOptions
from sightline.tasks.segmentation import SegmentationOptions
from sightline.tasks.windows import InferenceMode
from sightline.tokens.grid import Grid

SHAPE = {"depth": 2, "heads": 3, "dim": 48, "train_grid": Grid(4, 4), "num_prefix_tokens": 1}


def augment(name: str) -> Callable[..., Any]:
    return lambda **options: make_augmentations({name: options})


def head(name: str) -> Callable[..., Any]:
    sizes = {"depth": 3, "dim": 48, "heads": 4, "patch_size": 4, "image_size": 16, "num_classes": 5}
    return lambda **options: make_head(ViTConfig(**sizes, head=name, head_options=options))


def shape(**changes: Any) -> TrunkShape:
    return TrunkShape(**{**SHAPE, **changes})


@pytest.mark.parametrize(
    ("make", "given", "field"),
    [
        (FrameSampling, {"count": 0}, "count"),
        (FrameSampling, {"count": MOST_FRAMES + 1}, "count"),
        (FrameSampling, {"count": 2.0}, "count"),
        (FrameSampling, {"count": True}, "count"),
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
        (PackingConfig, {"tokens": True}, "tokens"),
        (PackingConfig, {"padded": []}, "padded"),
        (PackingConfig, {"padded": [4096, 4096]}, "padded"),
        (PackingConfig, {"padded": [1024]}, "padded"),
        (PackingConfig, {"padded": 4096}, "padded"),
        (PackingConfig, {"resolutions": [16]}, "resolutions"),
        (PackingConfig, {"aspect": "wide"}, "aspect"),
        (PackingConfig, {"algorithm": "first_fitt"}, "algorithm"),
        (PackingConfig, {"most_images": 2.5}, "most_images"),
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
        (augment("three_augment"), {"radius": 2.0}, "radius"),
        (augment("colour_jitter"), {"hue": 0.6}, "hue"),
        (augment("colour_jitter"), {"contrast": "much"}, "contrast"),
        (augment("rand_augment"), {"magnitude": 31}, "magnitude"),
        (augment("rand_augment"), {"operations": 0}, "operations"),
        (augment("random_erasing"), {"fill": "white"}, "fill"),
        (augment("random_erasing"), {"mean": [0.5]}, "mean"),
        (shape, {"dim": 49}, "dim"),
        (shape, {"depth": 0}, "depth"),
        (shape, {"depth": 2.5}, "depth"),
        (shape, {"heads": "3"}, "heads"),
        (shape, {"heads": True}, "heads"),
        (shape, {"num_prefix_tokens": -1}, "num_prefix_tokens"),
        (Corruption, {"share": 0.0}, "share"),
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
        (head("eomt"), {"masked": "yes"}, "masked"),
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
        (SegmentationOptions, {"inference": 3}, "inference"),
        (InferenceMode, {"kind": "slide"}, "kind"),
        (InferenceMode, {"kind": "mmseg", "window": 0}, "window"),
        (InferenceMode, {"kind": "mmseg", "window": 16, "stride": 17}, "stride"),
        (InferenceMode, {"window": 16}, "window"),
        (InferenceMode, {"scales": ()}, "scales"),
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
    ],
)
def test_an_entry_is_refused_by_its_place(make: Any, given: dict[str, Any], field: str, value: object) -> None:
    with pytest.raises(InputError) as error:
        make(**given)
    assert (error.value.field, error.value.value) == (field, value)
