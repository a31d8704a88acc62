"""Detection through the commands, uniform and packed, and every head on a few images until it knows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sightline.cli.app import main
from sightline.data.batch import Batch, collate_uniform
from sightline.data.loader import Collator, load_batches, uniform
from sightline.data.open import open_source
from sightline.data.targets import Crop
from sightline.evaluation import measure
from sightline.metrics.box_ap import ImageDetections, Sizes, match_detections, mean_precision
from sightline.models.box_head import BoxOutputs
from sightline.models.create import make_model, model_config
from sightline.tasks.base import predict_batch
from sightline.tasks.detection import Detection, DetectionOptions

TINY = ["--model_options={depth: 1, dim: 48, heads: 4}", "--precision=float32"]


def run(*words: str | Path) -> None:
    """A command, which ends well."""
    assert main(list(map(str, words))) == 0


@pytest.mark.parametrize(
    ("head", "packed"), [("fcos", False), pytest.param("detr_queries", True, marks=pytest.mark.slow)]
)
def test_detection_trains_is_measured_and_predicts(
    head: str, packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "default_image_count", lambda source: 8)
    out = tmp_path / "run"
    packs = ["--recipe", "navit_scenes", "--packing.tokens=256", "--packing.drop=null"]
    size = packs if packed else ["--batch_size=16"]
    what = ["--data", "scenes:pairs", "--task=detection", f"--task_options={{head: {head}}}", *TINY]
    what += ["--validation.images=16", "--validation.times=1"]
    run("train", *what, *size, "--resolution", "16", "--images", "128", "--encoding", "rope_axial", "--out", out)
    losses = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
    quarter = len(losses) // 4
    assert sum(losses[-quarter:]) < sum(losses[:quarter])
    run("evaluate", out, "--resolutions", "16,24", "--images", "12")
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {"box_ap", "box_ap50", "box_ap75", "box_ar100"} == {row["metric"] for row in rows}
    assert {16, 24} <= {row["resolution"] for row in rows}
    capsys.readouterr()
    photo = Path(__file__).parents[1] / "faults" / "inputs" / "good.jpg"
    run("predict", out, photo, "--json")
    said = json.loads(capsys.readouterr().out)
    assert isinstance(said["objects"], list)


def average_precision(task: Detection, outputs: list[BoxOutputs], batch: Batch) -> float:
    """AP50 of one batch."""
    seen = []
    each = zip(task.split_outputs(outputs, batch.layout), batch.targets["objects"], batch.targets["seen"], strict=True)
    for one, objects, size in each:
        found = task.decode(one, Crop((0, 0, *objects.size), size))
        seen.append(ImageDetections(found.boxes, found.labels, found.scores, objects))
    return float(mean_precision(match_detections(seen, task.config.num_classes, [Sizes()]))[0][0])


@pytest.mark.slow
@pytest.mark.parametrize("head", ["fcos", "detr_queries"])
def test_a_head_learns_images_by_heart(head: str) -> None:
    source, options = open_source("scenes:pairs"), DetectionOptions(head=head)
    torch.manual_seed(0)
    config = model_config(
        "vit_micro_patch4", encoding="rope_axial", image_size=32, depth=2, task="detection",
        **Detection.model_options(source, options),
    )  # fmt: skip
    model, task = make_model(config), Detection(config, options)
    make = Collator(source, "train", model.image_rows, task.targets, collate_uniform, model.num_prefix_tokens)
    (batch,) = load_batches(make, uniform(range(4), (32, 32), 64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0)
    best = 0.0
    for step in range(600):
        total, units = task.loss(predict_batch(model.train(), batch), batch.targets, batch.layout)
        optimizer.zero_grad()
        (total / units).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 24:
            with torch.no_grad():
                best = average_precision(task, predict_batch(model.eval(), batch), batch)
            if best >= 0.95:
                return
    raise AssertionError(f"{head}: AP50 {best:.3f} after 600 steps")
