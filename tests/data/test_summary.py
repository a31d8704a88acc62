"""What recipes are told of a folder, and what they choose by it."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.data import stored
from sightline.data import summary as summary_module
from sightline.data.sources.imagefolder import ImageFolder
from sightline.data.summary import Summary
from sightline.io.yaml import read_yaml
from sightline.recipes import recipe


def make(root, height=48, width=60, count=6):
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, level in (("dark", 30), ("light", 180)):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(level, level + 60, (height, width, 3)) // (1, 2, 3)
                Image.fromarray(pixels.astype(np.uint8)).save(root / split / name / f"{number}.png")
    return root


def test_mean_and_deviation_are_measured_once(tmp_path, monkeypatch):
    make(tmp_path / "images", 64, 64)
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    found = ImageFolder(tmp_path / "images").summary()
    files = sorted((tmp_path / "images" / "train").rglob("*.png"))
    whole = np.stack([np.asarray(Image.open(path)) for path in files]) / 255
    assert found == Summary(
        12, 64.0, tuple(np.round(whole.mean((0, 1, 2)), 3)), tuple(np.round(whole.std((0, 1, 2)), 3)), 12, ("label",)
    )
    monkeypatch.setattr(stored, "measure_colours", None)
    assert ImageFolder(tmp_path / "images").summary() == found


def test_a_sample_is_spread_and_leaves_out_what_is_damaged(tmp_path, monkeypatch):
    root = make(tmp_path, count=10)
    bad = root / "train" / "dark" / "0.png"
    bad.write_bytes(bad.read_bytes()[:-50])
    read = []
    real = summary_module.read_image
    monkeypatch.setattr(summary_module, "read_image", lambda path, **rest: read.append(path) or real(path, **rest))
    monkeypatch.setattr(stored, "SAMPLED", 5)
    found = ImageFolder(root).summary()
    assert sorted(Path(path).parent.name for path in read) == ["dark"] * 3 + ["light"] * 2
    assert found.sampled == 4


@pytest.mark.parametrize(
    ("side", "model", "resolution"),
    [
        (30, "vit_tiny_patch4", 32),
        (64, "vit_tiny_patch8", 64),
        (124, "vit_tiny_patch16", 128),
        (300, "vit_tiny_patch16", 224),
    ],
)
def test_small_images_get_small_patches(side, model, resolution):
    seen = Summary(100, side, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 100)
    fixed = recipe("imagefolder", "imagefolder:x", lambda _: seen)
    packed = recipe("navit_imagefolder", "imagefolder:x", lambda _: seen)
    for one in (fixed, packed):
        assert (one.model, one.resolution, one.loss, one.data) == (model, resolution, "ce", "imagefolder:x")
        assert one.model_options == {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    assert packed.packing is not None
    assert (packed.packing.aspect, packed.packing.resolutions) == ("native", (resolution // 2, resolution))


def test_a_recipe_for_other_data_is_refused(refused, tmp_path):
    root = make(tmp_path / "images")
    for name in ("navit_scenes", "vit_scenes", "digits"):
        says = [
            f"recipe {name}",
            f"imagefolder:{root}",
            "recipes for imagefolder: ",
            "imagefolder, ",
            "navit_imagefolder",
        ]
        refused("train", "--recipe", name, "--data", f"imagefolder:{root}", "--out", tmp_path / "run", says=says)


TINY = [f"--model_options.{key}={value}" for key, value in {"depth": 1, "dim": 48, "heads": 4}.items()]


@pytest.mark.parametrize("name", ["imagefolder", "navit_imagefolder"])
def test_a_folder_s_recipe_says_what_it_chose_and_goes_on_with_that(name, cli, tmp_path):
    root, out = make(tmp_path / "images"), tmp_path / "run"
    words = ["train", "--data", f"imagefolder:{root}", *TINY, "--images", 12, "--threads", 1, "--out", out]
    code, _, err = cli(*words, "--recipe", name)
    assert code == 0, err
    assert f"imagefolder:{root}: 12 images of about 54 px: task classification, vit_tiny_patch8 at 64 px; mean " in err
    assert "\ntraining: 12 images, " in err
    # With 4 heads.
    assert "encoding lookhere_90: 5 of its directions" in err
    saved = read_yaml(out / "config.yaml")
    assert saved["model"] == "vit_tiny_patch8"
    seen = ImageFolder(root).summary()
    assert tuple(saved["model_options"]["mean"]) == seen.mean
    assert (saved["packing"] is None) == (name == "imagefolder")
    record = json.loads((out / "checkpoint" / "config.json").read_text())
    assert tuple(record["preparation"]["std"]) == seen.std
    # The run goes on with what it began with, not with what a recipe says of the data today.
    assert cli(*words, "--resume")[0] == 0


def test_a_model_of_one_s_own_choice_is_said_without_a_size(cli, tmp_path):
    root = make(tmp_path / "images")
    words = ["train", "--data", f"imagefolder:{root}", "--model", "vit_micro_patch4", *TINY, "--images", 12]
    code, _, err = cli(*words, "--threads", 1, "--out", tmp_path / "run")
    assert code == 0, err
    assert "vit_micro_patch4; mean " in err
    assert "None" not in err


def test_small_models_by_name(cli):
    _, out, _ = cli("models")
    for name in ("vit_micro_patch8", "vit_tiny_patch8"):
        assert name in out
