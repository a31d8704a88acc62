"""Wrong options and folders of dense tasks: one line that names the key, and nothing made, before any training."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from tests.tiny import MODEL, tree

SMALL = {**MODEL, "patch_size": 4}


def words_of(task, head, settings):
    given = {"model_options": SMALL, **settings}
    pairs = [f"--{name}={json.dumps(value)}" for name, value in given.items()]
    head = ["--task-options.head", head] if head else []
    return ["train", "--data", "scenes:pairs", "--task", task, *head, "--threads", 1, "--images", 32, *pairs]


OWN = "task_options.head_options."
WRONG = [
    ("segmentation", "fcos", {}, ["head fcos", "gives no maps"]),
    ("segmentation", "linear", {}, ["head linear", "expected a head of all tokens"]),
    ("detection", "pix", {}, ["head pix", "gives no boxes"]),
    ("detection", "mlp", {}, ["head mlp", "expected a head of all tokens"]),
    ("segmentation", "pix", {OWN + "backround_bias": 1}, ["head pix", "did you mean 'background_bias'?"]),
    ("detection", "fcos", {OWN + "queries": 1}, ["head fcos", "'queries' is not known", "allowed: hidden"]),
    ("segmentation", "pix", {"task_options.head_options": [1]}, ["head_options = [1]", "group of keys"]),
    ("detection", "fcos", {"task_options.head_options": None}, ["head_options = null", "group of keys"]),
    ("segmentation", "pix", {OWN + "background_bias": "x"}, ['background_bias = "x"', "number"]),
    ("segmentation", "linear_map", {OWN + "norm": 5}, ["norm = 5", "true or false"]),
    ("segmentation", "upernet", {OWN + "layers": 3}, ["layers = 3", "a list"]),
    ("segmentation", "upernet", {OWN + "layers": ["a", 0, 0, 0]}, ['layers[0] = "a"', "whole number"]),
    ("detection", "simple_pyramid", {OWN + "scales": 3}, ["scales = 3", "a list"]),
    ("segmentation", "pix", {"task_options.inference.scales": 0}, ["inference.scales = 0", "a list"]),
    ("segmentation", "pix", {"task_options.inference.scales": [1e9]}, ["inference.scales", "at most 16"]),
    (
        "segmentation",
        "pix",
        {"task_options.inference": {"kind": "mmseg", "window": 30, "stride": 8}},
        ["inference.window 30", "28 or 32"],
    ),
    ("segmentation", "pix", {"model_options": {**SMALL, "head": "fcos"}}, ["model_options.head", "task_options.head"]),
    ("segmentation", "pix", {"mixing.mixup": 0.5}, ["mixing", "segmentation", "null"]),
    ("detection", "fcos", {"mixing.cutmix": 0.5}, ["mixing", "detection", "null"]),
]


@pytest.mark.parametrize(("task", "head", "settings", "says"), WRONG)
def test_options(task, head, settings, says, refused, tmp_path):
    refused(*words_of(task, head, settings), "--out", tmp_path / "out", says=says)
    assert not any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    from sightline import create_model, save_model

    names = ("background", "disc", "square", "triangle", "ring")
    made = {**SMALL, "num_classes": 5, "class_names": names, "task": "segmentation", "head": "pix"}
    folder = tmp_path_factory.mktemp("dense") / "model"
    save_model(create_model("vit_micro_patch4", encoding="none", image_size=16, **made), folder)
    return folder


def photo(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize("out", ["photos", "photos/in", "."])
def test_nothing_is_drawn_among_images_that_are_read(out, dense, refused, tmp_path):
    images = [photo(tmp_path / "photos" / "in" / name) for name in ("x.png", "x.labels.png")]
    before = tree(tmp_path)
    refused("predict", dense, *images, "--out", tmp_path / out, "--overwrite", says=["--out", "x.labels.png", "reads"])
    assert tree(tmp_path) == before
