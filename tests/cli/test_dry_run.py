"""`sightline train --dry-run` says what a run would be, makes two small steps, and leaves nothing."""

from __future__ import annotations

import json

import pytest
import torch

import sightline
from tests.data.three_kinds import KINDS, images
from tests.tiny import pictures, tree

PAPER = ("train", "--recipe", "lookhere_150ep", "--encoding", "lookhere_90", "--dry-run")
SMALL = (
    "--model", "vit_micro_patch4", "--resolution", 16, "--model_options.depth=1", "--model_options.dim=48",
    "--model_options.heads=4", "--precision=float32",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["imagefolder", "hf", "parquet", "wds"])
def test_the_paper_s_own_model_on_every_kind_of_data(kind, cli, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "arrow")
    data = KINDS[kind](tmp_path / "data", images())
    small = () if kind == "imagefolder" else SMALL
    code, out, err = cli(*PAPER, *small, "--data", data, "--out", tmp_path / "run", "--json")
    assert code == 0, err
    found = json.loads(out)
    config = found["config"]
    with torch.device("meta"):
        model = sightline.create_model(
            config["model"], encoding="lookhere_90", num_classes=found["classes"], **config["model_options"]
        )
    assert found["parameters"] == sum(one.numel() for one in model.parameters())
    # The data lacks nothing; ViT-B may lack memory here.
    assert found["missing"] == [] or (kind == "imagefolder" and config["model"] == "vit_base_patch16")
    assert len(found["losses"]) == 2
    # Every class begins at 1 / 1000, of whatever number there are.
    assert found["losses"][0] > 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_a_paper_s_run_on_a_small_folder(cli, tmp_path, packed):
    data = pictures(tmp_path / "data", count=20)
    before = tree(tmp_path)
    more = ("--packing.tokens=200", "--packing.most_tokens=20", "--images", 6000) if packed else ()
    code, out, err = cli(*PAPER, "--data", data, *SMALL, *more, "--out", tmp_path / "run", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["images"] == {"train": 40, "test": 40}
    assert found["classes"] == 2
    assert 2 <= len(found["losses"]) == len(found["seconds"]) <= 2 + packed
    assert any("split minival" in one for one in found["missing"])
    assert found["memory"] > 4 * found["parameters"]
    spent = found["spent"]
    if packed:
        assert 5000 < spent["images"] < 7000
        assert found["steps"] == pytest.approx(spent["tokens"] / 190, rel=0.15)
    else:
        # 150 epochs of 40 images, a step an epoch.
        assert (found["steps"], spent["images"]) == (150, 6000)
        assert spent["tokens"] == 6000 * 17
        assert "150 of at most 2,048 images" in cli(*PAPER, "--data", data, *SMALL, "--out", tmp_path / "run")[1]
    config = found["config"]
    assert (config["batch_size"], config["epochs"], config["images"]) == (None if packed else 2048, None, 6000)
    assert config["optimizer"]["lr"] == 3e-3
    assert tree(tmp_path) == before


def test_what_does_not_fit_is_said(cli, tmp_path, monkeypatch):
    from sightline.distributed import machine

    data = pictures(tmp_path / "data", count=200)
    # A step of the 200 takes about 58 million bytes.
    monkeypatch.setattr(machine, "available_memory", lambda *_: 25_000_000)
    code, out, err = cli(*PAPER, "--data", data, *SMALL, "--json")
    assert code == 0, err
    assert "--accumulate " in " ".join(json.loads(out)["missing"])
    assert err.count("sightline: warning: a training step") == 1
