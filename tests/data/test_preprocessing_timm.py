"""Every command prepares an image as timm does for the same weights."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from PIL import Image

import sightline
from sightline.data.open import open_source
from sightline.data.preprocessing import Preprocessing
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.evaluation.logits import find_logits, read_logits
from sightline.evaluation.predict_images import predict_images
from sightline.export.program import METADATA
from sightline.hub.load import load_model, save_model
from sightline.models import create_model
from sightline.tasks.base import task_of
from tests.evaluation.suite_data import OPTIONS, model_folder

pytestmark = pytest.mark.slow

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LANDSCAPE, PORTRAIT, SQUARE = (427, 640), (640, 427), (500, 500)


def photo(size, seed=0):
    """uint8 [height, width, 3]: waves and noise, so that every filter has something to do."""
    draws = np.random.default_rng(seed)
    y, x = np.mgrid[: size[0], : size[1]]
    waves = np.stack([np.sin(x / 7 + y / (5 + one)) for one in range(3)], axis=-1)
    return (127 + 80 * waves + draws.normal(0, 25, (*size, 3))).clip(0, 255).astype(np.uint8)


def timm_pixels(image, target, mode, crop, interpolation="bicubic"):
    """uint8 [height, width, 3] of timm's own transform."""
    transform = import_timm().data.create_transform(
        (3, *target), is_training=False, interpolation=interpolation, crop_pct=crop, crop_mode=mode, mean=MEAN, std=STD,
        normalize=False,
    )  # fmt: skip
    return transform(Image.fromarray(image)).permute(1, 2, 0).numpy().astype(int)


@pytest.mark.parametrize("size", [LANDSCAPE, (97, 61)])
@pytest.mark.parametrize("target", [(97, 96), (448, 64)])
@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize(("crop", "interpolation"), [(0.9, "bicubic"), (1.0, "bilinear"), (0.875, "lanczos")])
def test_pixels_are_timms(size, target, mode, crop, interpolation):
    image = photo(size)
    prepare = Preprocessing(target, 16, MEAN, STD, interpolation, crop, mode)
    wanted = timm_pixels(image, target, mode, crop, interpolation)
    for given in (image, Image.fromarray(image)):
        assert np.abs(prepare.view(given).astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize("target", [(32, 32), (16, 48)])
def test_a_models_tensors_are_timms(mode, target):
    timm = import_timm()
    theirs = timm.create_model(
        "vit_tiny_patch16_224", depth=1, embed_dim=24, num_heads=3, img_size=target,
        pretrained_cfg_overlay={"crop_mode": mode, "crop_pct": 0.9, "mean": MEAN, "std": STD},
    )  # fmt: skip
    arguments = {"model": "vit_tiny_patch16_224", "depth": 1, "embed_dim": 24, "num_heads": 3, "img_size": target}
    cfg = {"crop_mode": mode, "crop_pct": 0.9, "mean": MEAN, "std": STD}
    ours = sightline.import_weights("timm", theirs.state_dict(), {**arguments, "pretrained_cfg_overlay": cfg})
    assert ours.config.crop_mode == mode
    data = timm.data.resolve_data_config({"input_size": (3, *target)}, model=theirs)
    assert data["crop_mode"] == mode
    transform = timm.data.create_transform(**data, is_training=False)
    for size in (LANDSCAPE, PORTRAIT, SQUARE):
        image = photo(size)
        wanted = transform(Image.fromarray(image))
        step = 1 / (255 * min(STD))
        for model in (ours, theirs):
            assert float((sightline.preprocessing(model)(image, target) - wanted).abs().max()) <= step + 1e-6


def test_published_names_that_squash():
    for name in ("eva02_base_patch14_448.mim_in22k_ft_in22k_in1k", "vit_base_patch16_clip_384"):
        cfg = import_timm().models.get_pretrained_cfg(name).to_dict()
        prepare = Preprocessing.from_cfg({**cfg, "input_size": (3, 448, 448)}, 14)
        image = photo((448, 896))
        wanted = timm_pixels(image, (448, 448), "squash", cfg["crop_pct"])
        assert np.abs(prepare.view(image).astype(int) - wanted).max() <= 1


@pytest.fixture
def data(tmp_path):
    """A landscape and a portrait of two classes, in train and in test."""
    kinds = itertools.product(("train", "test"), {"a": (61, 97), "b": (97, 61)}.items())
    for number, (split, (name, size)) in enumerate(kinds):
        path = tmp_path / "data" / split / name / "1.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(photo(size, number)).save(path)
    return tmp_path / "data"


def python_logits(model, paths, resolution=None):
    prepare = sightline.preprocessing(model)
    with torch.inference_mode():
        return torch.stack([model(prepare(path, resolution)[None])[0] for path in paths]).numpy()


def predicted(model, paths, resolution=None):
    answers = itertools.chain(*predict_images(model, task_of(model), map(str, paths), resolution))
    return np.stack([one.output.numpy() for one in answers])


MODES = {"center": (3, 0.8), "squash": (3, 0.8), "border": (3, 0.8), "grey": (1, 0.8)}


@pytest.mark.parametrize("kind", MODES)
def test_predict_evaluate_and_suites_give_equal_logits(kind, data, tmp_path, cli):
    channels, crop = MODES[kind]
    options = {"channels": channels, "crop": crop, "crop_mode": "center" if kind == "grey" else kind}
    folder = model_folder(tmp_path / "model", 2, **options)
    paths = sorted(data.glob("test/*/*.png"))
    model = load_model(folder).eval()
    wanted = python_logits(model, paths, 24)
    assert predicted(model, paths, 24) == pytest.approx(wanted, abs=1e-5)
    shared = ("--resolutions", "24", "--precision", "float32", "--threads", "1")
    for way in ("data", "suite"):
        out = tmp_path / f"of_{way}"
        code, _, err = cli("evaluate", folder, f"--{way}", f"imagefolder:{data}", "--out", out, "--logits", *shared)
        assert code == 0, err
        found = [one for one in map(read_logits, find_logits(out / "logits")) if one.measured["shrunk"] is None]
        assert [one.logits for one in found] == [pytest.approx(wanted, abs=1e-5)], way


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
def test_sizes_that_are_not_square(mode, data):
    model = create_model("vit_micro_patch4", **{**OPTIONS, "image_size": (16, 24)}, crop=0.8, crop_mode=mode).eval()
    paths = sorted(data.glob("test/*/*.png"))
    wanted = python_logits(model, paths)
    assert predicted(model, paths) == pytest.approx(wanted, abs=1e-5)
    prepare = sightline.preprocessing(model)
    source = prepare.prepared(open_source(f"imagefolder:{data}"))
    shown = [prepare.normalise(source.example("test", index, (16, 24)).image) for index in range(2)]
    with torch.inference_mode():
        assert model(torch.stack(shown)).numpy() == pytest.approx(wanted, abs=1e-5)


def test_the_preparation_is_saved_and_exported(tmp_path):
    model = create_model("vit_micro_patch4", **OPTIONS, crop=0.8, crop_mode="squash", mean=MEAN, std=STD).eval()
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert sightline.preprocessing(again) == sightline.preprocessing(model)
    assert again.pretrained_cfg["crop_mode"] == "squash"
    sightline.export_model(model, tmp_path / "model.pt2", to="torch")
    told: dict[str, str] = {METADATA: ""}
    torch.export.load(tmp_path / "model.pt2", extra_files=told)
    assert json.loads(told[METADATA])["crop_mode"] == "squash"


def test_other_numbers_of_channels_are_refused_by_every_command(data, tmp_path, cli):
    folder = model_folder(tmp_path / "model", 2, channels=4)
    with pytest.raises(InputError):
        sightline.preprocessing(load_model(folder))
    source, image = f"imagefolder:{data}", data / "test" / "a" / "1.png"
    shared = ("--precision", "float32", "--threads", "1")
    commands = [
        ("predict", folder, image, *shared),
        ("evaluate", folder, "--data", source, "--out", tmp_path / "out", *shared),
        ("evaluate", folder, "--suite", source, "--out", tmp_path / "out", *shared),
        (
            "train",
            "--data",
            source,
            "--init-from",
            folder,
            "--out",
            tmp_path / "out",
            "--images",
            "8",
            "--threads",
            "1",
        ),
        ("analyse", folder, "--data", source, "--out", tmp_path / "out"),
    ]
    for words in commands:
        code, out, err = cli(*words)
        assert (code, out) == (2, "")
        assert "4 channels" in err.splitlines()[-1]
        assert not (tmp_path / "out").exists(), words
