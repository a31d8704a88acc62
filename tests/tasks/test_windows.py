"""Images looked at whole, in windows, mirrored and at several sizes: by hand, and through the task."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline import create_model
from sightline.data.batch import Batch, collate_packed, collate_uniform
from sightline.data.targets import Crop
from sightline.models import Model
from sightline.tasks.base import make_task, predict_batch
from sightline.tasks.windows import InferenceMode, enlarged_to_window, infer, window_starts
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import patchify


def model_of(head: str = "pix", **options: Any) -> Model:
    torch.manual_seed(0)
    whole = {"depth": 1, "dim": 24, "heads": 3, "num_classes": 3, "task": "segmentation", "image_size": 16, **options}
    model = create_model("vit_micro_patch4", encoding="learned_1d", head=head, **whole)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return model.eval()


def test_windows_begin_as_both_rules_say() -> None:
    for side in range(4, 80):
        for window in (4, 13, 32, 90):
            for stride in {1, 3, window // 2, window} - {0}:
                ours = window_starts(side, window, stride)
                # mmsegmentation's `slide_inference`.
                count = max(side - window + stride - 1, 0) // stride + 1
                ends = [min(number * stride + window, side) for number in range(count)]
                assert ours == [max(end - window, 0) for end in ends]
                if side > window:
                    # rstrudel/segmenter's `sliding_window`.
                    theirs = list(range(0, side, stride))
                    kept = [one for one in theirs if one < side - window]
                    assert ours == [*kept, side - window]


@pytest.mark.parametrize("size", [(24, 40), (40, 24), (20, 16), (16, 16)])
@pytest.mark.parametrize("kind", ["segmenter", "mmseg"])
@torch.no_grad()
def test_windows_are_averaged_where_they_meet(kind: Any, size: tuple[int, int]) -> None:
    model, image = model_of(), torch.randn(3, *size)
    total, count = torch.zeros(3, *size), torch.zeros(size)
    for y in window_starts(size[0], 16, 8):
        for x in window_starts(size[1], 16, 8):
            total[:, y : y + 16, x : x + 16] += model(image[None, :, y : y + 16, x : x + 16])[0][0]
            count[y : y + 16, x : x + 16] += 1
    assert count.min() >= 1
    found = infer(model, image, InferenceMode(kind, 16, 8))
    assert torch.allclose(found, (total / count).log_softmax(0), atol=1e-5)
    if max(size) > 16:
        assert not torch.allclose(found, model(image[None])[0][0].log_softmax(0), atol=1e-2)


@torch.no_grad()
def test_an_image_smaller_than_a_window_is_enlarged_by_segmenter_and_kept_by_mmseg() -> None:
    model, image = model_of(), torch.randn(3, 8, 20)
    assert enlarged_to_window(image, 16).shape == (3, 16, 40)
    assert enlarged_to_window(image.mT, 16).shape == (3, 40, 16)
    assert torch.equal(enlarged_to_window(image, 8), image)
    kept = infer(model, image, InferenceMode("mmseg", 20, 20))
    assert torch.allclose(kept, model(image[None])[0][0].log_softmax(0), atol=1e-5)
    large = F.interpolate(image[None], size=(16, 40), mode="bilinear", align_corners=False)
    windows = [model(large[..., start : start + 16])[0][0] for start in (0, 16, 24)]
    both = (windows[1][..., 8:] + windows[2][..., :8]) / 2
    joined = torch.cat([windows[0], windows[1][..., :8], both, windows[2][..., 8:]], dim=-1)
    found = infer(model, image, InferenceMode("segmenter", 16, 16), size=(16, 40))
    assert torch.allclose(found, joined.log_softmax(0), atol=1e-5)


@torch.no_grad()
def test_mirror_images_and_sizes_are_averaged_as_probabilities() -> None:
    model, image = model_of(), torch.randn(3, 12, 20)

    def chances(shown: Tensor) -> Tensor:
        scores = F.interpolate(model(shown[None])[0], size=(12, 20), mode="bilinear", align_corners=False)[0]
        return scores.softmax(0)

    flipped = chances(image.flip(-1))
    both = (chances(image) + flipped.flip(-1)) / 2
    found = infer(model, image, InferenceMode(flip=True))
    assert torch.allclose(found.exp(), both, atol=1e-5)
    mirrored = infer(model, image.flip(-1), InferenceMode(flip=True))
    assert torch.allclose(mirrored.flip(-1), found, atol=1e-4)
    larger = F.interpolate(image[None], size=(24, 40), mode="bilinear", align_corners=False)[0]
    found = infer(model, image, InferenceMode(scales=(1.0, 2.0)))
    assert torch.allclose(found.exp(), (chances(image) + chances(larger)) / 2, atol=1e-5)
    assert torch.allclose(found.exp().sum(0), torch.ones(12, 20), atol=1e-5)


def batches(images: list[Tensor]) -> tuple[list[Tensor], list[Grid]]:
    rows = [patchify(image[None].float(), 4)[0] for image in images]
    return rows, [Grid(image.shape[1] // 4, image.shape[2] // 4) for image in images]


def batch_of(images: list[Tensor], prefix: int, *, as_pack: bool) -> Batch:
    rows, grids = batches(images)
    arranged = (collate_packed if as_pack else collate_uniform)(rows, grids, [None] * len(images), prefix)
    return Batch(*arranged, {}, torch.arange(len(images)), ["a"] * len(images), [{}] * len(images))


@pytest.mark.parametrize("head", ["pix", "segmenter", "eomt"])
@torch.no_grad()
def test_the_task_looks_as_it_is_told(head: str) -> None:
    model = model_of(head)
    task = make_task("segmentation", model.config, {"inference": {"kind": "segmenter", "window": 16, "stride": 8}})
    images = [torch.randint(0, 256, (3, 16, 28)), torch.randint(0, 256, (3, 16, 28))]
    pack, batch = (batch_of(images, model.num_prefix_tokens, as_pack=one) for one in (True, False))
    both = task.split_outputs(task.outputs(model, batch), batch.layout)
    alone = task.split_outputs(task.outputs(model, pack), pack.layout)
    for one, other, image in zip(both, alone, images, strict=True):
        assert torch.allclose(one, other, atol=1e-4)
        normed = (image / 255 - 0.5) / 0.5
        assert torch.allclose(one, infer(model, normed, task.options.inference), atol=1e-4)
        decoded = task.decode(one, Crop((0, 0, 32, 56), (16, 28)))
        assert decoded.labels.shape == (32, 56)
    total, units = task.loss(task.outputs(model, pack), {"pixels": [torch.ones(16, 28).byte()] * 2}, pack.layout)
    assert units == 2 * 16 * 28
    assert float(total) == pytest.approx(-sum(float(one[1].sum()) for one in alone), rel=1e-4)
    plain = make_task("segmentation", model.config)
    for one, other in zip(plain.outputs(model, pack), predict_batch(model, pack), strict=True):
        same = [torch.equal(one[name], other[name]) for name in one] if head == "eomt" else [torch.equal(one, other)]
        assert all(same)
