"""How logits are read as scores is part of a model, wherever it comes from and wherever it goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import sightline
from sightline.convert import import_weights
from sightline.convert.timm_build import build
from sightline.errors import InputError
from sightline.export.program import describe
from sightline.models import create_model
from sightline.tasks.classification import scores_of
from sightline.training.config import TrainConfig
from tests.parity.golden_files import weights
from tests.parity.toy_models import FILES, arguments
from tests.tiny import INPUTS

SMALL: dict[str, Any] = {"depth": 1, "dim": 48, "heads": 4, "num_classes": 3, "image_size": 16}


def test_a_run_s_scores_survive_every_way_of_saving(tiny_run, run_copy, cli, tmp_path):
    """Trained by a binary cross entropy; then loaded, saved, fine-tuned and exported."""

    def said(folder: Path) -> list[float]:
        code, out, _ = cli("predict", folder, INPUTS / "good.jpg", "--topk", 10, "--json")
        assert code == 0
        return [one["score"] for one in json.loads(out)["top"]]

    scores = said(tiny_run)
    assert abs(sum(scores) - 1) > 1e-4
    model = sightline.load_model(tiny_run)
    sightline.save_model(model, tmp_path / "saved")
    assert said(tmp_path / "saved") == scores
    sightline.save_model(sightline.create_model(init_from=tmp_path / "saved", drop_path=0.1), tmp_path / "tuned")
    assert said(tmp_path / "tuned") == scores
    assert describe(model)["score_link"] == "sigmoid"
    # A run by the other loss, begun with these weights, says the other thing.
    code, _, err = cli(
        "train", "--data", "digits", "--init-from", run_copy, "--images", 32, "--out", tmp_path / "ce",
        "--loss=ce", "--resolution", 16,
    )  # fmt: skip
    assert code == 0, err
    assert sum(said(tmp_path / "ce")) == pytest.approx(1, abs=1e-5)


def test_it_is_decided_by_the_loss():
    with pytest.raises(InputError, match="score_link: is decided by 'loss'"):
        TrainConfig(model_options={"score_link": "softmax"})
    with pytest.raises(InputError, match=r"score_link = .sigmoide.*did you mean 'sigmoid'"):
        create_model("vit_micro_patch4", score_link="sigmoide", **SMALL)
    logits = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    assert torch.equal(scores_of(logits, "sigmoid"), logits.sigmoid())
    assert torch.equal(scores_of(logits, "softmax"), logits.softmax(1))


PROJECTS = {"lookhere": "sigmoid", "rope_vit": "sigmoid", "navit": "softmax", "big_vision": "softmax"}


@pytest.mark.parametrize("project", PROJECTS)
def test_imported_weights_are_read_as_they_were_trained(project, tmp_path):
    file = next(name for name, one in FILES.items() if one == project)
    model = import_weights(project, weights(file), arguments(file))
    assert model.config.score_link == PROJECTS[project]
    sightline.save_model(model, tmp_path / "m")
    assert sightline.load_model(tmp_path / "m").config.score_link == PROJECTS[project]


@pytest.mark.parametrize(
    ("name", "tag", "more", "link"),
    [
        ("deit3_small_patch16_224", "fb_in1k", {}, "sigmoid"),
        ("deit3_small_patch16_224", "fb_in22k_ft_in1k", {}, "softmax"),
        ("deit3_small_patch16_384", "fb_in1k", {}, "softmax"),
        ("deit3_base_patch16_224", "fb_in1k", {}, "softmax"),
        ("vit_small_patch16_rope_224", "naver_in1k", {}, "sigmoid"),
        ("vit_small_patch16_rope_224", "naver_in1k", {"num_classes": 5}, "softmax"),
        ("vit_tiny_patch16_224", "augreg_in21k_ft_in1k", {}, "softmax"),
    ],
)
def test_weights_that_timm_names(name, tag, more, link, tmp_path):
    """By the name with its tag, and in a folder of timm's."""
    theirs = build({"model": name, "depth": 1, **more})
    given = {"model": f"{name}.{tag}", "depth": 1, **more}
    assert import_weights("timm", theirs.state_dict(), given).config.score_link == link
    # A name alone may be anybody's weights.
    assert import_weights("timm", theirs.state_dict(), {**given, "model": name}).config.score_link == "softmax"
    classes = more.get("num_classes", 1000)
    record = {"architecture": name, "num_classes": classes, "model_args": {"depth": 1}, "pretrained_cfg": {"tag": tag}}
    (tmp_path / "config.json").write_text(json.dumps(record))
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    assert sightline.load_model(tmp_path).config.score_link == link


def test_published_weights_by_a_name_without_a_tag(tmp_path):
    theirs = build({"model": "deit3_small_patch16_224", "depth": 1})
    save_file(theirs.state_dict(), tmp_path / "w.safetensors")
    overlay = {"file": str(tmp_path / "w.safetensors"), "custom_load": False}
    ours = sightline.load_model("timm:deit3_small_patch16_224", depth=1, pretrained_cfg_overlay=overlay)
    assert ours.config.score_link == "sigmoid"
