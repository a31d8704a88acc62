"""Segmentation: its loss by hand, packs as single images, what is said of a stored image, and a whole run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from sightline import create_model
from sightline.cli.app import main
from sightline.data.sources.scenes import Scenes
from sightline.data.targets import IGNORE
from sightline.evaluation import measure
from sightline.tasks.base import make_task
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.tiny import MODEL

HEADS = ["pix", "linear_map"]


def model_of(head, **options):
    torch.manual_seed(0)
    names = ("background", "disc", "square", "triangle", "ring")
    options = {"encoding": "lookhere_90", **MODEL, **options}
    model = create_model(
        "vit_micro_patch4", head=head, num_classes=5, class_names=names, task="segmentation", image_size=16, **options
    )
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    for name, buffer in model.head.named_buffers():
        if name.endswith(("mean", "var")):
            torch.nn.init.uniform_(buffer, 0.5, 1.5)
    return model.eval()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("prefix", [{}, {"class_token": True, "num_registers": 2}])
def test_an_image_has_the_same_map_alone_in_a_batch_and_in_a_pack(head, prefix):
    model, sizes = model_of(head, **prefix), [(16, 24), (8, 40), (16, 24), (12, 12)]
    images = [torch.randn(3, *size) for size in sizes]
    alone = [model(image[None])[0][0] for image in images]
    packed = [one[0] for one in model(images)]
    batch = model(torch.stack([images[0], images[2]]))[0]
    scale = 1 if head == "pix" else 4
    for size, one, other in zip(sizes, alone, packed, strict=True):
        assert one.shape == (5, size[0] // scale, size[1] // scale)
        assert torch.allclose(one, other, atol=2e-5)
        assert one.std() > 0.1
    assert torch.allclose(batch, torch.stack([alone[0], alone[2]]), atol=2e-5)


@pytest.mark.parametrize("head", HEADS)
def test_what_was_dropped_is_neither_learnt_nor_in_the_way(head):
    model = model_of(head, class_token=True)
    task, kept = make_task("segmentation", model.config), [torch.tensor([0, 2, 5]), torch.arange(8)]
    layout = TokenLayout.packed([Grid(2, 3), Grid(4, 2)], num_prefix_tokens=1).keep(kept)
    tokens = torch.randn(1, layout.slots, 48)
    labels = [torch.randint(0, 5, (8, 12), dtype=torch.uint8), torch.randint(0, 5, (16, 8), dtype=torch.uint8)]
    maps = model.head(tokens, layout)
    total, units = task.loss(maps, {"pixels": labels}, layout)
    there = torch.zeros(2, 3, dtype=torch.bool)
    there.view(-1)[kept[0]] = True
    there = there.repeat_interleave(4, 0).repeat_interleave(4, 1)
    assert units == 3 * 16 + 8 * 16
    # By patch: each label beside the logits of its own patch.
    each = maps[0][0] if head == "pix" else maps[0][0].repeat_interleave(4, 1).repeat_interleave(4, 2)
    by_hand = F.cross_entropy(each[:, there].T, labels[0][there].long(), reduction="sum")
    rest, _ = task.loss(maps[1:], {"pixels": labels[1:]}, TokenLayout.packed([Grid(4, 2)], num_prefix_tokens=1))
    assert float(total) == pytest.approx(float(by_hand + rest), rel=1e-5)
    changed = [labels[0].where(there, torch.tensor(3, dtype=torch.uint8)), labels[1]]
    assert float(task.loss(maps, {"pixels": changed}, layout)[0]) == float(total)


def test_the_loss_is_a_mean_over_pixels_that_have_a_class():
    task, layout = make_task("segmentation", model_of("pix").config), TokenLayout.packed([Grid(2, 3), Grid(1, 2)])
    maps = [torch.randn(1, 5, 8, 12, requires_grad=True), torch.randn(1, 5, 4, 8, requires_grad=True)]
    labels = [torch.randint(0, 5, (8, 12), dtype=torch.uint8), torch.randint(0, 5, (9, 17), dtype=torch.uint8)]
    labels[0][:3] = IGNORE
    total, units = task.loss(maps, {"pixels": labels}, layout)
    by_hand = torch.zeros(())
    for one, wanted in zip(maps, labels, strict=True):
        big = F.interpolate(one, size=tuple(wanted.shape), mode="bilinear", align_corners=False)[0]
        chances = big.log_softmax(0)
        for y, x in np.argwhere(wanted.numpy() != IGNORE):
            by_hand = by_hand - chances[wanted[y, x].long(), y, x]
    assert units == 5 * 12 + 9 * 17
    assert float(total) == pytest.approx(float(by_hand), rel=1e-5)
    nothing = [torch.full_like(one, IGNORE) for one in labels]
    total, units = task.loss(maps, {"pixels": nothing}, layout)
    assert (float(total), units) == (0.0, 0)
    total.backward()
    assert maps[0].grad.abs().sum() == 0


TRAIN = ["--model_options={depth: 1, dim: 48, heads: 4}", "--precision=float32", "--encoding",
         "rope_axial", "--optimizer.lr=3e-3"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("head", "packed"), [("pix", True), ("linear_map", False)])
def test_a_run_learns_is_measured_predicts_and_is_reported(head, packed, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measure, "default_image_count", lambda source: 12)
    out = tmp_path / "run"
    shown = ["--recipe", "navit_scenes", "--data", "scenes:pairs", "--packing.tokens=256"] if packed else [
        "--data", "scenes:pairs", "--batch_size=16"]  # fmt: skip
    words = ["train", *shown, *TRAIN, "--task", "segmentation", "--task-options.head", head, "--images", "320"]
    words += ["--val.images", "16", "--val.times", "1", "--out", str(out)]
    assert main(words) == 0, capsys.readouterr().err
    losses = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert np.mean(losses[-3:]) < losses[0]
    assert main(["evaluate", str(out), "--resolutions", "32,48", "--images", "12"]) == 0
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {"miou", "pixel_accuracy", "foreground_iou", "boundary_iou", "iou"} == {row["metric"] for row in rows}
    assert {row["resolution"] for row in rows} >= {32, 48}
    image = Scenes("pairs").example("test", 3, (50, 70)).image
    Image.fromarray(image).save(tmp_path / "photo.png")
    capsys.readouterr()
    assert main(["predict", str(out), str(tmp_path / "photo.png"), "--json", "--out", str(tmp_path / "drawn")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sum(one["share"] for one in answer["classes"]) == pytest.approx(1)
    labels = Image.open(answer["pictures"]["labels"])
    assert (labels.mode, labels.size) == ("P", (70, 50))
    assert np.asarray(labels).max() < 5
    assert Image.open(answer["pictures"]["overlay"]).size == (70, 50)
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "mean iou" in page.lower()
    assert "top-1" not in page
