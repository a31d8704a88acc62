"""`sightline predict`: images of any size and shape, and an answer for each that can be read."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import sightline
from sightline.data.image_file import read_picture
from tests.tiny import INPUTS, put, reseal, tree


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


def test_the_answer_is_the_models(answers, tiny_run, tmp_path):
    """Logits at native size, of the classes by name, as sigmoids: the model was trained with BCE."""
    picture(20, 31).save(tmp_path / "a.png")
    (answer,) = answers(tmp_path / "a.png", "--topk", 99, "--precision", "float32")
    model = sightline.load_model(tiny_run)
    with torch.inference_mode():
        logits = model([sightline.preprocessing(model)(tmp_path / "a.png", "native")])[0]
    assert {one["class"]: one["score"] for one in answer["top"]} == pytest.approx(
        {str(number): value for number, value in enumerate(logits.sigmoid().tolist())}, rel=1e-5
    )
    assert len(answer["top"]) == 10


def test_resolutions(answers, tmp_path):
    picture(60, 100).save(tmp_path / "a.png")
    picture(1, 1).save(tmp_path / "dot.png")

    def grid(*words, image="a.png"):
        return answers(tmp_path / image, *words)[0]["grid"]

    assert grid() == grid("--resolution", "native") == [15, 25]
    assert grid("--resolution", 24) == [6, 6]
    assert grid("--resolution", "24x40") == [6, 10]
    rows, cols = grid("--resolution", "max:60")
    assert (rows * cols <= 60, cols > rows) == (True, True)
    assert grid("--resolution", "max:1") == [1, 1]
    assert grid("--resolution", "max:99999") == [15, 25]
    # Up or down to a number of patches, the aspect kept.
    rows, cols = grid("--resolution", "tokens:60")
    assert (rows * cols <= 60, cols > rows) == (True, True)
    assert grid("--resolution", "tokens:60") == grid("--resolution", "max:60")
    rows, cols = grid("--resolution", "tokens:960")
    assert (900 < rows * cols <= 960, rows / cols) == (True, pytest.approx(0.6, abs=0.03))
    assert grid("--resolution", "tokens:16", image="dot.png") == [4, 4]
    # Nothing is made larger than a patch asks for, unless a size is.
    assert grid(image="dot.png") == [1, 1]
    assert grid("--resolution", 8, image="dot.png") == [2, 2]


def test_a_limit_beyond_the_usual_one(answers, tmp_path):
    picture(160, 164).save(tmp_path / "a.png")
    assert answers(tmp_path / "a.png", "--resolution", "max:2000")[0]["grid"] == [40, 41]
    rows, cols = answers(tmp_path / "a.png")[0]["grid"]
    assert 900 < rows * cols <= 1024


def test_topk(answers, tmp_path):
    picture(8, 8).save(tmp_path / "a.png")
    assert [len(answers(tmp_path / "a.png", "--topk", count)[0]["top"]) for count in (1, 3, 10, 11)] == [1, 3, 10, 10]


def test_folders_patterns_and_lists(answers, tmp_path, monkeypatch):
    """As data/image_list.py says, and each image is answered in its place, twice where it is named twice."""
    monkeypatch.chdir(tmp_path)
    for name in ("photos/b 10.png", "photos/b 9.png", "photos/deep/ä.png", "c.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        picture(8, 12).save(name)
    (tmp_path / "photos" / "notes.txt").write_text("not an image")
    below = ["photos/b 9.png", "photos/b 10.png", "photos/deep/ä.png"]

    def named(*words, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return [one["image"] for one in answers(*words)]

    assert named("photos") == below
    assert named("photos/*.png", "c.png") == [*below[:2], "c.png"]
    assert named("**/*.png") == ["c.png", *below]
    assert named("c.png", "-", "c.png", stdin="photos/b 10.png\n\nphotos/deep/ä.png\n") == [
        "c.png", "photos/b 10.png", "photos/deep/ä.png", "c.png",
    ]  # fmt: skip


def test_many_images_are_answered_as_each_alone(answers, tmp_path):
    rng = np.random.default_rng(0)
    names = []
    for number in range(12):
        names.append(tmp_path / f"{number}.png")
        picture(*rng.integers(1, 140, 2), seed=number).save(names[-1])
    together = answers(*names, "--topk", 10)
    assert [one["image"] for one in together] == [str(name) for name in names]
    for one, name in zip(together, names, strict=True):
        (alone,) = answers(name, "--topk", 10)
        scores = [{best["index"]: best["score"] for best in said["top"]} for said in (one, alone)]
        assert scores[0] == pytest.approx(scores[1], abs=2e-5)
        assert {**one, "top": 0} == {**alone, "top": 0}


def test_no_answer_waits_for_the_end(cli, tiny_run, tmp_path, monkeypatch):
    """Each is in the file as soon as its pack is done, so that a kill loses only the pack under way."""
    picture(128, 128).save(tmp_path / "a.png")
    out, there = tmp_path / "out.jsonl", []

    def reading(path, **options):
        there.append(len(out.read_text().splitlines()))
        if len(there) == 8:
            raise KeyboardInterrupt
        return read_picture(path, **options)

    monkeypatch.setattr("sightline.evaluation.predict_images.read_picture", reading)
    with out.open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        code, _, err = cli("predict", tiny_run, *[tmp_path / "a.png"] * 9, "--json")
        # Before the stream is closed, which writes what it held back.
        lines = out.read_text().splitlines()
    assert (code, err) == (130, "sightline: interrupted\n")
    # 1024 patches each, so the fourth of 4096 tokens with the CLS token is too many.
    assert there == [0, 0, 0, 0, 3, 3, 3, 6]
    assert [json.loads(line)["grid"] for line in lines] == [[32, 32]] * 6


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_softmax_where_it_was_trained_with_one(cli, tiny_run, tmp_path):
    config = ["--config", tiny_run / "config.yaml", "--loss=ce", "--threads", 1]
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
        ([INPUTS / "good.jpg", "--tokp", 3], ["--tokp", "no such option", "did you mean '--topk'?"]),
        ([INPUTS / "good.jpg", "--tokp=3"], ["--tokp=3", "did you mean '--topk'?"]),
        ([INPUTS / "good.jpg", "--max-tokens", 9], ["--max-tokens", "--topk, --labels, --frames"]),
        ([INPUTS / "good.jpg", "--resolution", 18], ["--resolution 18", "patch_size 4", "16 or 20"]),
        ([INPUTS / "good.jpg", "--resolution", 2], ["--resolution 2", "nearest to 2: 4)"]),
        ([INPUTS / "good.jpg", "--resolution", 0], ["--resolution 0"]),
        ([INPUTS / "good.jpg", "--resolution", "16x18"], ["--resolution 16x18", "nearest to 18: 16 or 20)"]),
        ([INPUTS / "good.jpg", "--resolution", "18x16"], ["--resolution 18x16", "nearest to 18: 16 or 20)"]),
        (
            [INPUTS / "good.jpg", "--resolution", "big"],
            ["--resolution big", "native, max:PATCHES, tokens:PATCHES, a side or height x"],
        ),
        ([INPUTS / "good.jpg", "--resolution", "nativ"], ["--resolution nativ: expected", "did you mean 'native'?"]),
        ([INPUTS / "good.jpg", "--resolution", "max4096"], ["--resolution max4096", "did you mean 'max:4096'?"]),
        ([INPUTS / "good.jpg", "--resolution", "max:0"], ["--resolution max:0: expected"]),
        ([INPUTS / "good.jpg", "--resolution", "tokens:0"], ["--resolution tokens:0: expected"]),
        ([INPUTS / "good.jpg", "--resolution", "max:1k"], ["--resolution max:1k: expected"]),
        ([INPUTS / "good.jpg", "--resolution", "max:"], ["--resolution max:: expected"]),
        ([INPUTS / "good.jpg", "--resolution", "16x"], ["--resolution 16x: expected"]),
        ([INPUTS / "good.jpg", "photos/*.nothing"], ["photos/*.nothing: no file matches"]),
        ([INPUTS.parent.parent / "parity" / "golden"], ["golden: no images in this folder"]),
        ([INPUTS / "good.jpg", "--device", "tpu"], ["device 'tpu'"]),
    ],
)
def test_what_is_refused(words, says, refused, tiny_run, tmp_path):
    refused("predict", tiny_run, *words, says=says)
    assert tree(tmp_path) == {}


def test_an_empty_list(refused, tiny_run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    refused("predict", tiny_run, "-", says=["standard input holds no paths"])


def test_logits_that_are_not_finite_end_with_4(cli, run_copy):
    """Each image is named and none is lost; a file that cannot be read changes nothing about it."""
    file = run_copy / "checkpoint" / "model.safetensors"
    tensors = load_file(file)
    tensors["head.weight"] = torch.full_like(tensors["head.weight"], 3e38)
    save_file(tensors, file)
    reseal(run_copy / "checkpoint")
    code, out, err = cli("predict", run_copy, INPUTS / "good.jpg")
    assert (code, out) == (4, "")
    assert err == f"sightline: error: {INPUTS / 'good.jpg'}: the logits are not finite\n"
    names = ["good.jpg", "text.jpg", "gray8.png"]
    code, out, err = cli("predict", run_copy, *(INPUTS / name for name in names), "--json")
    assert code == 4
    assert [Path(json.loads(line)["image"]).name for line in out.splitlines()] == names
    assert json.loads(out.splitlines()[2])["error"] == "the logits are not finite"
    assert err.splitlines()[-1] == (
        "sightline: error: 1 of 3 images could not be read, 2 of 3 images gave logits that are not finite"
    )


def test_a_model_says_how_its_scores_are_read(cli, tiny_run, tmp_path):
    """Whatever `load_model` takes, also what was trained on no data that it names."""
    model = sightline.load_model(tiny_run)
    model.config = model.config.replace(score_link="softmax")
    sightline.save_model(model, tmp_path / "vit")
    code, out, _ = cli("predict", f"local-dir:{tmp_path / 'vit'}", INPUTS / "good.jpg", "--topk", 10, "--json")
    assert code == 0
    assert sum(one["score"] for one in json.loads(out)["top"]) == pytest.approx(1, abs=1e-5)


def test_a_model_of_other_channels(refused, tmp_path):
    model = sightline.create_model("vit_micro_patch4", encoding="none", num_classes=2, image_size=16, channels=4)
    sightline.save_model(model, tmp_path / "m")
    refused("predict", tmp_path / "m", INPUTS / "good.jpg", says=[str(tmp_path / "m"), "4 channels"])


def test_sizes_that_the_patch_does_not_divide(cli, tmp_path):
    """A model that pads takes them, and the grid is the padded one."""
    model = sightline.create_model("vit_micro_patch4", encoding="none", num_classes=2, image_size=16, fit="pad")
    sightline.save_model(model, tmp_path / "m")
    code, out, _ = cli("predict", tmp_path / "m", INPUTS / "good.jpg", "--resolution", "18x9", "--json")
    assert code == 0
    assert (json.loads(out)["seen_size"], json.loads(out)["grid"]) == ([18, 9], [5, 3])


def test_a_model_without_a_head(refused, tiny_run, tmp_path):
    sightline.save_model(sightline.load_model(tiny_run, num_classes=0), tmp_path / "m")
    refused("predict", tmp_path / "m", INPUTS / "good.jpg", says=["has no head"])


def test_a_model_whose_classes_have_no_names(cli, tiny_run, tmp_path):
    sightline.save_model(sightline.load_model(tiny_run, num_classes=3), tmp_path / "m")
    code, out, _ = cli("predict", tmp_path / "m", INPUTS / "good.jpg", "--json")
    assert code == 0
    assert {(one["class"], one["index"]) for one in json.loads(out)["top"]} == {("0", 0), ("1", 1), ("2", 2)}


def test_names_and_indices_belong_together(cli, run_copy):
    """The name is that of the class at the index, and the answer goes by the names that the checkpoint has."""
    file = run_copy / "checkpoint" / "config.json"
    record = json.loads(file.read_text())
    names = [f"name {9 - index}" for index in range(10)]
    put(record, class_names=names)
    file.write_text(json.dumps(record))
    reseal(run_copy / "checkpoint")
    code, out, _ = cli("predict", run_copy, INPUTS / "good.jpg", "--topk", 10, "--json")
    assert code == 0
    assert {one["index"]: one["class"] for one in json.loads(out)["top"]} == dict(enumerate(names))


def test_the_preprocessing_is_the_checkpoints(cli, run_copy, tmp_path):
    """Mean, deviation, filter and crop: each changes the answer, as it changes the tensor."""
    shutil.copy(INPUTS / "good.jpg", tmp_path / "a.jpg")
    file = run_copy / "checkpoint" / "config.json"
    original = json.loads(file.read_text())
    said = []
    for change in ({}, {"mean": [0.1] * 3}, {"std": [0.9] * 3}, {"interpolation": "bilinear"}, {"crop": 0.5}):
        file.write_text(json.dumps({**original, "preparation": {**original["preparation"], **change}}))
        reseal(run_copy / "checkpoint")
        code, out, _ = cli(
            "predict", run_copy, tmp_path / "a.jpg", "--resolution", 16, "--json", "--precision", "float32"
        )
        assert code == 0
        said.append(json.loads(out)["top"][0]["score"])
        model = sightline.load_model(run_copy)
        with torch.inference_mode():
            logits = model([sightline.preprocessing(model)(tmp_path / "a.jpg", 16)])[0]
        assert said[-1] == pytest.approx(float(logits.sigmoid().max()), rel=1e-5)
    assert len(set(said)) == 5
