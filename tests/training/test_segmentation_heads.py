"""Segmentation heads through the commands, uniform and packed, and every head on a few images until it knows them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.cli.app import main
from sightline.data.batch import collate_uniform
from sightline.data.loader import Collator, load_batches, uniform
from sightline.data.open import open_source
from sightline.evaluation import measure
from sightline.metrics.iou import MeanIou
from sightline.models.create import make_model, model_config
from sightline.models.head import TokenHead
from sightline.tasks.base import predict_batch
from sightline.tasks.segmentation import Segmentation, SegmentationOptions

SMALL: dict[str, dict[str, Any]] = {
    "segmenter": {"layers": 1},
    "upernet": {"channels": 16},
    "eomt": {"queries": 8, "blocks": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize(("head", "packed"), [("upernet", False), ("eomt", True)])
def test_a_head_trains_is_measured_and_predicts(
    head: str, packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "default_image_count", lambda source: 12)
    out = tmp_path / "run"
    # Those that take whole images refuse token dropping.
    drop = "" if head == "segmenter" else ", drop: null"
    size = ["--recipe", "navit_scenes"]
    size += [f"--packing={{tokens: 256, resolutions: [16, 32], aspect: square{drop}}}"]
    options = json.dumps({"head": head, "head_options": SMALL[head]})
    words = ["train", *(size if packed else ["--batch_size=16"]), "--data", "scenes:many"]
    words += ["--model_options={depth: 2, dim: 48, heads: 4}", "--precision=float32", "--task"]
    words += ["segmentation", f"--task_options={options}", "--images", "640", "--out", str(out)]
    words += ["--val.images", "16", "--val.times", "1"]
    assert main(words) == 0, capsys.readouterr().err
    losses = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
    # One batch's loss is mostly its scenes: a quarter beside another.
    quarter = len(losses) // 4
    assert sum(losses[-quarter:]) < sum(losses[:quarter])
    assert main(["evaluate", str(out), "--resolutions", "32,48", "--images", "12"]) == 0
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {"miou", "pixel_accuracy"} <= {row["metric"] for row in rows}
    capsys.readouterr()
    photo = Path(__file__).parents[1] / "faults" / "inputs" / "good.jpg"
    assert main(["predict", str(out), str(photo), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sum(one["share"] for one in answer["classes"]) == pytest.approx(1)


@pytest.mark.parametrize(("task", "head"), [("segmentation", "upernet"), ("detection", "simple_pyramid")])
def test_a_head_of_whole_images_refuses_dropped_tokens_before_a_run(
    task: str, head: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Also where a schedule drops none at first."""
    words = ["train", "--recipe", "navit_scenes", "--data", "scenes:pairs", "--task", task, "--task-options.head", head]
    words += ["--packing.drop=schedule", "--images", "64", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert f"train: packing.drop schedule: head {head} " in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


# Maps as fine as patches need more of them for thin shapes: (image size, patch size), options of the head.
FINE, COARSE = {"image_size": 48, "patch_size": 2, "dim": 64, "depth": 1, "heads": 4}, {"image_size": 32, "depth": 2}
BY_HEART: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "eomt": (COARSE, {"queries": 16}),
    "linear_map": (FINE, {}),
    "pix": (COARSE, {}),
    "segmenter": (FINE, {"layers": 1, "heads": 4}),
    "upernet": (COARSE, {"channels": 32}),
}


@pytest.mark.slow
@pytest.mark.parametrize("head", ["segmenter", "eomt"])
def test_a_head_learns_images_by_heart(head: str) -> None:
    source, (trunk, own) = open_source("scenes:many"), BY_HEART[head]
    options = SegmentationOptions(head=head, head_options=own)
    torch.manual_seed(0)
    decided = Segmentation.model_options(source, options)
    config = model_config("vit_micro_patch4", encoding="rope_axial", task="segmentation", **trunk, **decided)
    model, task = make_model(config), Segmentation(config, options)
    assert isinstance(model.head, TokenHead)
    make = Collator(source, "train", model.image_rows, task.targets, collate_uniform, model.num_prefix_tokens)
    side, cells = config.table_size, config.train_grid.cells
    (batch,) = load_batches(make, uniform(range(2), (side, side), cells, 2))
    steps, most = 450, 1.5e-3 if trunk is COARSE else 4e-3
    optimizer = torch.optim.AdamW(model.parameters(), lr=most, betas=(0.9, 0.99), weight_decay=0)
    best = 0.0
    for step in range(steps):
        model.head.done = step / steps
        optimizer.param_groups[0]["lr"] = most * 0.5 * (1 + math.cos(math.pi * step / steps))
        total, units = task.loss(predict_batch(model.train(), batch), batch.targets, batch.layout)
        optimizer.zero_grad()
        (total / units).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 24:
            with torch.no_grad():
                metric = MeanIou(task)
                metric.update(predict_batch(model.eval(), batch), batch)
            best = next(row.value for row in metric.rows() if row.metric == "miou")
            if best >= 0.95:
                return
    raise AssertionError(f"{head}: mIoU {best:.3f} after {steps} steps")
