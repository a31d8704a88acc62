"""`sightline predict`: images of any size and shape, and an answer for each that can be read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import sightline
from tests.tiny import INPUTS, reseal, tree


def picture(height, width, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.fixture
def answers(cli, tiny_run):
    """`answers(*words)` are the JSON lines of a prediction that must end with exit 0."""

    def ask(*words):
        code, out, err = cli("predict", tiny_run, *words, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    return ask


def test_a_photograph_and_a_strip(answers, tmp_path):
    picture(427, 640).save(tmp_path / "photo.jpg")
    picture(1, 2000).save(tmp_path / "strip.png")
    photo, strip = answers(tmp_path / "photo.jpg", tmp_path / "strip.png")
    assert (photo["size"], strip["size"]) == ([427, 640], [1, 2000])
    rows, cols = photo["grid"]
    assert rows * cols <= 1024
    assert rows / cols == pytest.approx(427 / 640, rel=0.03)
    assert strip["grid"] == [1, 500]
    for answer in (photo, strip):
        assert answer["seen_size"] == [4 * side for side in answer["grid"]]
        assert len(answer["top"]) == 5
        scores = [one["score"] for one in answer["top"]]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score < 1 for score in scores)
    assert photo["top"] != strip["top"]


def test_the_photographs_that_scikit_image_ships(answers):
    """At their own aspect. Only those in the package itself: nothing is downloaded."""
    folder = Path(skimage.data.__file__).parent
    files = sorted(path for path in folder.iterdir() if path.suffix in (".png", ".jpg", ".jpeg"))
    assert {"astronaut.png", "camera.png", "coins.png", "page.png"} <= {path.name for path in files}
    found = answers(*files)
    assert [answer["image"] for answer in found] == [str(path) for path in files]
    assert len({tuple(answer["grid"]) for answer in found}) >= 3
    for answer, path in zip(found, files, strict=True):
        with Image.open(path) as image:
            assert answer["size"] == [image.height, image.width]
        height, width = answer["size"]
        assert answer["seen_size"][0] / answer["seen_size"][1] == pytest.approx(height / width, rel=0.05)


def test_the_answer_is_the_models(answers, tiny_run, tmp_path):
    """Logits at native size, of the classes by name, as sigmoids: the model was trained with BCE."""
    picture(20, 31).save(tmp_path / "a.png")
    (answer,) = answers(tmp_path / "a.png", "--topk", 99)
    model = sightline.load_model(tiny_run)
    with torch.inference_mode():
        logits = model([sightline.preprocessing(model)(tmp_path / "a.png", "native")])[0]
    assert {one["class"]: one["score"] for one in answer["top"]} == pytest.approx(
        {str(number): value for number, value in enumerate(logits.sigmoid().tolist())}, rel=1e-5
    )
    assert len(answer["top"]) == 10


def test_a_square_and_a_limit(answers, tmp_path):
    picture(60, 100).save(tmp_path / "a.png")
    assert answers(tmp_path / "a.png", "--resolution", 24)[0]["grid"] == [6, 6]
    assert answers(tmp_path / "a.png")[0]["grid"] == [15, 25]
    rows, cols = answers(tmp_path / "a.png", "--max-tokens", 60)[0]["grid"]
    assert (rows * cols <= 60, cols > rows) == (True, True)
    assert answers(tmp_path / "a.png", "--max-tokens", 1)[0]["grid"] == [1, 1]
    assert len(answers(tmp_path / "a.png", "--topk", 1)[0]["top"]) == 1


def test_lines_for_people(cli, tiny_run, tmp_path):
    names = ["a b.png", "ä.png", "line\nbreak.png"]
    for name in names:
        picture(8, 12).save(tmp_path / name)
    code, out, _ = cli("predict", tiny_run, *(tmp_path / name for name in names))
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert "(8x12 px, seen at 8x12 as 2x3 patches): " in line
    assert str(tmp_path / "ä.png") in lines[1]


def test_a_softmax_where_it_was_trained_with_one(cli, tiny_run, tmp_path):
    config = ["--config", tiny_run / "config.yaml", "--set", "loss=ce", "--threads", 1]
    assert cli("train", *config, "--out", tmp_path / "ce")[0] == 0
    code, out, _ = cli("predict", tmp_path / "ce", INPUTS / "good.jpg", "--topk", 10, "--json")
    assert code == 0
    assert sum(one["score"] for one in json.loads(out)["top"]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], ["at least one image"]),
        ([INPUTS / "good.jpg", "--topk", 0], ["--topk"]),
        ([INPUTS / "good.jpg", "--topk", "many"], ["--topk", "many"]),
        ([INPUTS / "good.jpg", "--max-tokens", 0], ["--max-tokens"]),
        ([INPUTS / "good.jpg", "--resolution", 18], ["--resolution 18", "patch size 4", "16 or 20"]),
        ([INPUTS / "good.jpg", "--resolution", 2], ["--resolution 2", "nearest: 4)"]),
        ([INPUTS / "good.jpg", "--resolution", 0], ["--resolution 0"]),
        ([INPUTS / "good.jpg", "--resolution", "big"], ["--resolution big", "native"]),
        ([INPUTS / "good.jpg", "--device", "tpu"], ["device 'tpu'"]),
    ],
)
def test_what_is_refused(words, says, refused, tiny_run, tmp_path):
    refused("predict", tiny_run, *words, says=says)
    assert tree(tmp_path) == {}


def test_logits_that_are_not_finite_end_with_4(cli, run_copy):
    file = run_copy / "checkpoint" / "model.safetensors"
    tensors = load_file(file)
    tensors["head.weight"] = torch.full_like(tensors["head.weight"], 3e38)
    save_file(tensors, file)
    reseal(run_copy / "checkpoint")
    code, out, err = cli("predict", run_copy, INPUTS / "good.jpg")
    assert (code, out) == (4, "")
    assert err.endswith("good.jpg: the logits are not finite\n")


def test_a_model_without_a_head(refused, tiny_run, tmp_path):
    sightline.save_model(sightline.load_model(tiny_run, num_classes=0), tmp_path / "m")
    refused("predict", tmp_path / "m", INPUTS / "good.jpg", says=["has no head"])


def test_a_model_whose_classes_have_no_names(cli, tiny_run, tmp_path):
    sightline.save_model(sightline.load_model(tiny_run, num_classes=3), tmp_path / "m")
    code, out, _ = cli("predict", tmp_path / "m", INPUTS / "good.jpg", "--json")
    assert code == 0
    assert {one["class"] for one in json.loads(out)["top"]} == {"0", "1", "2"}
