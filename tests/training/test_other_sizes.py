"""Training that begins with a model of another image size keeps its tables' grid; all else is the new size."""

from __future__ import annotations

import json

import pytest
import torch

import sightline
from sightline.convert import export_weights, import_weights
from sightline.convert.timm_build import build
from sightline.data.preprocessing import preprocessing
from sightline.hub.load import config_from_record
from sightline.models import create_model
from tests.contract.randomise import randomise_parameters

SMALL = {"depth": 1, "dim": 48, "heads": 4, "num_classes": 10}
TRAIN = ("train", "--data", "digits", "--images", 16, "--precision=float32", "--batch_size=8")


@pytest.mark.parametrize("encoding", ["learned_1d", "rpe_learned"])
def test_the_folder_says_the_size_that_it_was_trained_on_last(encoding, cli, tmp_path):
    first = randomise_parameters(create_model("vit_micro_patch4", encoding=encoding, image_size=(16, 20), **SMALL))
    sightline.save_model(first, tmp_path / "first")
    begin = (*TRAIN, "--init-from", tmp_path / "first", "--resolution", 32)
    code, _, err = cli(*begin, "--out", tmp_path / "run")
    assert code == 0, err
    assert "images of 32 px instead of height 16 and width 20 px" in err
    model = sightline.load_model(tmp_path / "run")
    assert (model.config.image_size, model.config.train_grid, model.patch_embed.grid_size) == (32, (4, 5), (4, 5))
    assert preprocessing(model).resolution == (32, 32)
    assert model.pretrained_cfg["input_size"] == (3, 32, 32)
    # Once more by itself, and on its own size again.
    again = sightline.create_model(init_from=model, image_size=(16, 20))
    assert (again.config.image_size, again.config.table_grid) == ((16, 20), None)
    code, _, err = cli(*begin, "--out", tmp_path / "run", "--resume")
    assert code == 0, err


def test_memory_is_asked_at_the_new_size(cli, monkeypatch, tmp_path):
    sightline.save_model(
        create_model("vit_micro_patch4", encoding="learned_1d", image_size=16, **SMALL), tmp_path / "m"
    )
    asked = []
    monkeypatch.setattr(
        "sightline.training.setup.warn_of_memory", lambda config, size, warn, **more: asked.append(size)
    )
    code, _, err = cli(*TRAIN, "--init-from", tmp_path / "m", "--resolution", 48, "--out", tmp_path / "run")
    assert code == 0, err
    assert asked == [48]


def test_older_folders_have_one_size(tmp_path):
    model = create_model("vit_micro_patch4", encoding="learned_1d", image_size=16, **SMALL)
    sightline.save_model(model, tmp_path / "m")
    record = json.loads((tmp_path / "m" / "config.json").read_text())
    assert record["architecture"].pop("table_grid") == [4, 4]
    assert config_from_record(record).train_grid == (4, 4)


@torch.no_grad()
def test_a_table_s_grid_goes_to_other_projects(tmp_path):
    """As the size that the original is built with; its inputs may have any."""
    first = randomise_parameters(create_model("vit_micro_patch4", encoding="learned_1d", image_size=16, **SMALL,
        encoding_options={"interpolation": "bicubic_antialias"}))  # fmt: skip
    model = sightline.create_model(init_from=first, image_size=32).eval()
    assert model.config.table_size == 16
    sightline.save_model(model, tmp_path / "m")
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(sightline.load_model(tmp_path / "m")(images), first.eval()(images))
    state, given = export_weights(model, "timm")
    assert given["img_size"] == 16
    theirs = build(given).eval()
    theirs.load_state_dict(state)
    assert torch.allclose(theirs(images), model(images), atol=2e-5)


@pytest.mark.parametrize(("size", "resolution"), [(32, 32), ([32, 48], 40)])
def test_training_begins_with_a_model_of_timm_s(size, resolution, cli, monkeypatch, tmp_path):
    given = {"model": "vit_tiny_patch16_224", "depth": 1, "embed_dim": 48, "img_size": size, "patch_size": 4}
    given["num_classes"] = 10
    sightline.save_model(import_weights("timm", build(given).state_dict(), given), tmp_path / "m")
    monkeypatch.setattr("sightline.evaluation.measure.default_image_count", lambda source: 4)
    begin = ("train", "--data", "scenes", *TRAIN[3:], "--init-from", tmp_path / "m", "--workers=0")
    code, _, err = cli(*begin, "--out", tmp_path / "run")
    assert code == 0, err
    model = sightline.load_model(tmp_path / "run")
    assert model.config.image_size == resolution
    assert model.config.train_grid == ((8, 8) if size == 32 else (8, 12))
