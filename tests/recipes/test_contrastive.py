"""Recipes of images and texts, and what a run of them gives: rows, a page, answers in words."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.cli.app import main
from sightline.cli.commands.explore import _loaded
from sightline.cli.run_config import training_config
from sightline.data.open import open_source
from sightline.evaluation.measures.base import MeasureInput
from sightline.evaluation.measures.zero_shot import ZeroShot
from sightline.evaluation.parts import WorkFolder
from sightline.hub.load import load_model
from sightline.io.config import build_config
from sightline.models.create import make_model, model_config
from sightline.published import paper
from sightline.recipes import default_recipe, recipe
from sightline.results.rows import read_rows
from sightline.sweeps.run import sweep
from sightline.tasks.base import make_task
from sightline.tasks.contrastive import Contrastive, ContrastiveTaskOptions
from sightline.training import run as training_run
from sightline.training.optim import parameter_groups
from sightline.training.setup import task_options
from tests.tiny import Unmeasured

TINY = {"depth": 1, "dim": 16, "heads": 2}


def captions(folder, count=12):
    """`captions.csv` of noise of several sizes."""
    draws = np.random.default_rng(0)
    with (folder / "captions.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "caption", "split"])
        for number in range(count):
            height, width = draws.integers(40, 90, 2).tolist()
            Image.fromarray(draws.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / f"{number}.png")
            rows.writerow([f"{number}.png", f"noise number {number}", "test" if number % 3 == 0 else "train"])
    return f"csv:{folder / 'captions.csv'}"


def test_navit_contrastive_in_numbers():
    """Appendix B.2, and section 2 for the encoder of texts."""
    config = recipe("navit_contrastive", "csv:somewhere.csv")
    before, options = recipe("navit_pretrain"), task_options(config)
    optimizer = config.optimizer
    assert (optimizer.lr, optimizer.weight_decay, optimizer.head_decay) == (3e-3, 1e-6, None)
    assert (optimizer.schedule, optimizer.warmup, optimizer.cooldown) == ("rsqrt", 10_000, 10_000)
    assert (config.packing, config.flip, config.parts, config.augment) == (before.packing, 0.0, 1.0, {})
    assert config.packing.resolutions[0] == 64
    assert config.packing.drop == "beta"
    assert (options.vocab_size, options.pair_loss, options.text["length"]) == (32_000, "softmax", 24)
    options = build_config(type(options), {**config.task_options, "text": {**options.text, "depth": 1}}, "test")
    head = Contrastive.model_options(open_source("scenes:pairs"), options)
    model = make_model(
        model_config("vit_tiny_patch16", **{**config.model_options, "depth": 1, **head}, encoding=config.encoding)
    )
    text = model.head.text
    assert text.config.pool == "attention"
    assert text.config.depth == 1
    for blocks in (model.blocks, text.blocks):
        names = [name for name, _ in blocks.named_parameters()]
        assert not [name for name in names if name.endswith(".bias") and "norm" not in name]
        assert blocks[0].attn.q_norm.weight.numel()
    groups = parameter_groups(model, optimizer)
    decayed = {id(one) for group in groups if group["weight_decay"] for one in group["params"]}
    matrices = (model.head.image_proj.weight, model.head.text_proj.weight, text.blocks[0].mlp.fc1.weight)
    assert {id(one) for one in matrices} < decayed
    assert id(model.head.logit_scale) not in decayed


def test_table_1_of_navit():
    numbers = [one for one in paper("navit").numbers if one.table == "1"]
    assert [(one.model, one.metric, one.value) for one in numbers] == [
        ("ViT-L/14", "zero_shot_top1", "68.3"), ("NaViT-L/14", "zero_shot_top1", "72.9"),
    ]  # fmt: skip


def test_recipes_by_data(tmp_path):
    assert default_recipe("csv:a.csv").task == default_recipe("coco-captions:.").task == "contrastive"
    asked = {"data": "scenes:pairs", "task": "contrastive"}
    assert training_config(None, asked, data=Unmeasured()).task_options == {}
    config = training_config(None, {}, "contrastive_scenes", data=Unmeasured())
    assert (config.data, config.images, config.task) == ("scenes:pairs", 96_000, "contrastive")
    options = task_options(config)
    assert Contrastive.model_options(open_source("scenes:pairs"), options)["head_options"]["text"]["depth"] == 2


@pytest.mark.parametrize("name", ["csv", "navit_contrastive", "contrastive_scenes"])
def test_a_dry_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    data = [] if name == "contrastive_scenes" else [captions(tmp_path)]
    small = ["--workers", "0", "--model-options.depth", "1", "--task-options.text.depth", "1"]
    small += [] if name == "csv" else ["--recipe", name]
    if name == "navit_contrastive":
        small += ["--model", "vit_tiny_patch16", "--packing.tokens", "512"]
    assert main(["train", *data, *small, "--dry-run"]) == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two steps of `contrastive_scenes`, tested at two sizes."""
    folder = tmp_path_factory.mktemp("contrastive")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(training_run, "default_image_count", lambda source: 16)
        small = ["--images", "16", "--batch-size", "8", "--workers", "0", "--validation.images", "8"]
        small += ["--model-options.depth", "1"]
        assert main(["train", "--recipe", "contrastive_scenes", "--out", "run", *small]) == 0
        assert main(["evaluate", "run", "--resolutions", "32,64", "--measures", "zero_shot", "--images", "16"]) == 0
    return folder / "run"


def test_zero_shot_at_two_sizes(run):
    rows = [row for row in read_rows(run / "results.jsonl") if row.metric == "zero_shot_top1" and not row.slices]
    assert sorted(row.resolution for row in rows if not row.shrunk) == [32, 64]


def test_predict_in_words(run, tmp_path, capsys):
    for number, size in enumerate([(32, 32), (64, 40), (36, 96)]):
        Image.new("RGB", size, (9 * number, 90, 30)).save(tmp_path / f"{number}.png")
    capsys.readouterr()
    words = ["--resolution", "native", "--json", "--labels", "a square,a disc"]
    assert main(["predict", str(run), *words, str(tmp_path)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 3
    for answer in answers:
        assert {one["class"] for one in answer["top"]} == {"a square", "a disc"}


def test_the_explorer_opens_it(run):
    pytest.importorskip("uvicorn")
    from tests.explorer.served import serving

    with serving(load_model(str(run))) as server:
        seen = server.view(size=[32, 48])
        assert (seen.status, seen.json["classes"]) == (200, [])
    with serving(_loaded(str(run), ["a disc, a ring"], pretrained=True)) as server:
        seen = server.view(size=[32, 48])
        assert {one["name"] for one in seen.json["classes"]} == {"a disc", "a ring"}


def test_the_page_shows_its_curves(run, tmp_path):
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert 'id="words"' in (tmp_path / "page.html").read_text()


def test_a_sweep_over_losses(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "losses.yaml").write_text(
        "base: {recipe: contrastive_scenes, images: 16, batch_size: 8, validation: {images: 8},"
        " model_options: {depth: 1}, task_options: {embed_dim: 16, text: {depth: 1, dim: 16, heads: 2}}}\n"
        "grid: {task_options.pair_loss: [softmax, sigmoid]}\n"
        "evaluate: {split: test, resolutions: [32], images: 8}\n"
    )
    assert len(sweep("losses.yaml").scores) == 2


def test_zero_shot_with_a_tuned_rule(tmp_path):
    """The classifier of words resizes its table as the model does."""
    source = open_source("scenes:captions")
    model = make_model(
        model_config(
            "vit_micro_patch4", depth=1, encoding="learned_1d", image_size=32,
            **Contrastive.model_options(source, ContrastiveTaskOptions(embed_dim=16, text=TINY)),
        )
    ).eval()  # fmt: skip
    task = make_task("contrastive", model.config).bind(source, "scenes:captions")

    def scores():
        subject = MeasureInput(model, task, source, "test", range(8), 48, "float32")
        rows = ZeroShot().rows(subject, WorkFolder(), "x")
        return next(row.value for row in rows if row.metric == "zero_shot_nll")

    torch.nn.init.normal_(model.encoding.table)
    usual, before = model.encoding.resize_rule.value, scores()
    model.encoding.set_resize_rule("corner_aligned")
    assert scores() != before
    model.encoding.set_resize_rule(usual)
    assert scores() == before
    with torch.no_grad():
        model.head.text.norm.bias.add_(1)
    assert scores() != before
