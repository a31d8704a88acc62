"""Average precision of boxes against pycocotools, and LVIS' rules and weights of images by what they mean."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from sightline.data.targets import Objects
from sightline.metrics.base import metrics_of
from sightline.metrics.box_ap import ImageDetections, Sizes, match_detections, mean_precision
from sightline.models import ViTConfig
from sightline.tasks.base import make_task
from sightline.tokens.layout import TokenLayout

# By hotcoco's LVISeval, of images that say of which classes no object is there, and of which not all are said.
LVIS = json.loads((Path(__file__).parent / "coco_cases" / "lvis_hotcoco.json").read_text())
SIZES = [Sizes(), Sizes(0, 32**2), Sizes(32**2, 96**2), Sizes(96**2)]


def said(boxes: Any, labels: Any, size: tuple[int, int] = (300, 300), **more: Any) -> Objects:
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    more = {"crowd": np.zeros(len(boxes), bool), "areas": (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)} | more
    return Objects(boxes, np.array(labels, np.int64), size, **more)


def random_case(seed: int, classes: int) -> list[ImageDetections]:
    draws = np.random.default_rng(seed)
    seen = []
    for _ in range(10):
        count, found = int(draws.integers(0, 8)), int(draws.integers(0, 30))
        low = draws.uniform(0, 90, (count, 2))
        boxes = np.concatenate([low, low + draws.uniform(2, 200, (count, 2))], axis=1)
        labels = draws.integers(0, max(classes - 1, 1), count)
        near = boxes[draws.integers(0, count, found)] if count else np.tile([10.0, 20, 60, 90], (found, 1))
        near = near + draws.normal(0, 4, near.shape)
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        scores = draws.integers(1, 9, found) / 9
        objects = said(boxes, labels, crowd=draws.random(count) < 0.2)
        seen.append(ImageDetections(near, draws.integers(0, classes, found), scores, objects))
    return seen


def summary(seen: list[ImageDetections], classes: int) -> list[float]:
    """The twelve numbers of COCO's summary, -1 where there is nothing to be found."""
    every = match_detections(seen, classes, SIZES)
    (average, recall), parts = mean_precision(every), [mean_precision(every, size) for size in (1, 2, 3)]
    few = [mean_precision(match_detections(seen, classes, SIZES[:1], limit))[1] for limit in (1, 10)]
    numbers = [average.mean(), average[0], average[5], *(one.mean() for one, _ in parts)]
    numbers += [*(one.mean() for one in few), recall.mean(), *(one.mean() for _, one in parts)]
    return [-1.0 if np.isnan(one) else float(one) for one in numbers]


@pytest.mark.parametrize("seed", range(5))
def test_random_cases_beside_pycocotools(seed: int) -> None:
    classes = 1 + seed
    seen = random_case(seed, classes)
    annotations, results = [], []
    for image, one in enumerate(seen, start=1):
        each = zip(one.objects.boxes, one.objects.labels, one.objects.crowd, one.objects.areas, strict=True)
        for box, label, crowd, area in each:
            about = {"id": len(annotations) + 1, "image_id": image, "category_id": int(label), "area": area}
            annotations.append({**about, "bbox": as_coco(box), "iscrowd": int(crowd)})
        for box, label, score in zip(one.boxes, one.labels, one.scores, strict=True):
            results.append({"image_id": image, "category_id": int(label), "bbox": as_coco(box), "score": score})
    truth = COCO()
    truth.dataset = {
        "info": {}, "annotations": annotations,
        "images": [{"id": number + 1} for number in range(len(seen))],
        "categories": [{"id": number} for number in range(classes)],
    }  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        theirs = COCOeval(truth, truth.loadRes(results), "bbox")
        theirs.evaluate()
        theirs.accumulate()
        theirs.summarize()
    assert summary(seen, classes) == pytest.approx(theirs.stats.tolist(), abs=1e-6)


def as_coco(box: np.ndarray) -> list[float]:
    return [box[1], box[0], box[3] - box[1], box[2] - box[0]]


def found(boxes: Any, labels: Any, scores: Any, objects: Objects) -> ImageDetections:
    return ImageDetections(
        np.array(boxes, np.float64).reshape(-1, 4), np.array(labels), np.array(scores, np.float64), objects
    )


def test_of_what_is_not_said_nothing_counts() -> None:
    """LVIS: class 1 is wrong where it is known to be absent, counts nowhere where nothing is said of it, and is wrong
    nowhere where not every object of it is said."""
    box, other = [0, 0, 40, 60], [100, 100, 150, 170]

    def average(label: int, **more: Any) -> float:
        objects = said([box], [0], **more)
        image = found([box, other], [0, label], [0.5, 0.9], objects)
        also = found([other], [1], [0.8], said([other], [1]))
        return float(mean_precision(match_detections([image, also], 2, [Sizes()]))[0][0])

    assert average(1) == pytest.approx(0.75)
    assert average(1, negative_classes=(1,)) == pytest.approx(0.75)
    assert average(1, negative_classes=()) == pytest.approx(1)
    assert average(0, negative_classes=()) == pytest.approx(0.75)
    assert average(0, negative_classes=(), non_exhaustive_classes=(0,)) == pytest.approx(1)


@pytest.mark.parametrize("case", LVIS["cases"], ids=lambda case: f"{len(case['images'])}_images")
def test_committed_cases_of_lvis(case: dict[str, Any]) -> None:
    seen = []
    for image in case["images"]:
        there, boxes = (
            np.array(image[key], np.float64).reshape(-1, width) for key, width in (("there", 5), ("found", 6))
        )
        more = {"negative_classes": tuple(image["absent"]), "non_exhaustive_classes": tuple(image["unfinished"])}
        objects = said(there[:, :4], there[:, 4], tuple(LVIS["size"]), **more)
        seen.append(found(boxes[:, :4], boxes[:, 4].astype(np.int64), boxes[:, 5] / 1000, objects))
    average, _ = mean_precision(match_detections(seen, case["classes"], [Sizes()], limit=300))
    assert [average.mean(), average[0], average[5]] == pytest.approx(case["ap_ap50_ap75"], abs=1e-9)


def test_an_image_that_counts_twice_is_there_twice() -> None:
    seen = random_case(3, 3)
    weights = np.array([2, 0, 1, 3, 0, 1, 1, 2, 0, 1])
    repeated = [one for one, often in zip(seen, weights, strict=True) for _ in range(often)]
    # Of equal scores the order is that of the images, which is the same where the same ones follow each other.
    distinct = [replace(one, scores=one.scores + number * 1e-4) for number, one in enumerate(seen)]
    repeated = [distinct[seen.index(one)] for one in repeated]
    for size in range(4):
        weighted = mean_precision(match_detections(distinct, 3, SIZES), size, weights)
        whole = mean_precision(match_detections(repeated, 3, SIZES), size)
        # Copies share their scores: between them precision is not yet as low, or high, as after them.
        assert weighted[1] == pytest.approx(whole[1], abs=1e-12, nan_ok=True)
        assert weighted[0] == pytest.approx(whole[0], abs=0.05, nan_ok=True)
    once = mean_precision(match_detections(seen, 3, SIZES), 0, np.ones(10, np.int64))
    assert once[0] == pytest.approx(mean_precision(match_detections(seen, 3, SIZES))[0], abs=1e-12)


def test_nothing_found_and_nothing_there() -> None:
    box = [[0, 0, 40, 60]]
    nothing = found([], np.zeros(0, np.int64), [], said(box, [0]))
    average, recall = mean_precision(match_detections([nothing], 2, [Sizes()]))
    assert (average == 0).all()
    assert (recall == 0).all()
    empty = found(box, [1], [0.5], said([], []))
    judged = match_detections([empty], 2, [Sizes()])
    assert np.isnan(mean_precision(judged)[0]).all()
    # What has no area any more is not there.
    gone = found(box, [0], [0.5], said([[5, 5, 5, 9]], [0]))
    assert np.isnan(mean_precision(match_detections([gone], 1, [Sizes()]))[0]).all()


def metric(**options: Any) -> Any:
    config = ViTConfig(dim=16, heads=2, depth=1, num_classes=2, class_names=("disc", "square"), head="fcos",
                       task="detection", patch_size=4, image_size=32)  # fmt: skip
    return metrics_of(make_task("detection", config, options))[0]


def outputs(seen: list[ImageDetections], size: tuple[int, int] = (32, 48)) -> Any:
    """What a head would give, and a batch of it, for images of 32 x 48 pixels or more that are seen as 64 x 96."""
    logits, boxes = torch.full((len(seen), 4, 2), -9.0), torch.zeros(len(seen), 4, 4)
    for image, one in enumerate(seen):
        for number, (box, label, score) in enumerate(zip(one.boxes, one.labels, one.scores, strict=True)):
            logits[image, number, int(label)] = float(np.log(score / (1 - score)))
            boxes[image, number] = torch.from_numpy(box / 4 * 64 / size[0])
    targets = {"objects": [one.objects for one in seen], "seen": [(64, 96)] * len(seen)}
    layout = TokenLayout.uniform((16, 24), len(seen), num_prefix_tokens=0)
    return [{"logits": logits, "boxes": boxes}], SimpleNamespace(layout=layout, targets=targets)


def test_rows_of_the_metric() -> None:
    size = (32, 48)
    boxes = [[[0, 0, 8, 8], [10, 10, 30, 40]], [[2, 4, 12, 20], [15, 4, 20, 9]]]
    seen = [found(some, [0, 1], [0.9, 0.8], said(some, [0, 1], size)) for some in boxes]
    wrong = found([[0, 0, 8, 9], [10, 10, 30, 30]], [0, 0], [0.7, 0.95], said(boxes[0], [0, 1], size))
    halves = metric(), metric()
    halves[0].update(*outputs(seen))
    halves[1].update(*outputs([wrong]))
    halves[0].merge(halves[1])
    rows = halves[0].rows()
    whole = {row.metric: row for row in rows if not row.slices}
    assert list(whole) == ["box_ap", "box_ap50", "box_ap75", "box_ar100"]
    expected = mean_precision(match_detections([*seen, wrong], 2, [Sizes()]))
    assert whole["box_ap"].value == pytest.approx(expected[0].mean())
    assert whole["box_ap50"].value == pytest.approx(expected[0][0])
    assert whole["box_ar100"].value == pytest.approx(expected[1].mean())
    assert 0.3 < whole["box_ap"].value < 1
    for row in whole.values():
        assert row.unit == "AP"
        assert row.better == "higher"
        assert row.count == 3
        assert row.interval is not None
        assert row.interval[0] <= row.value <= row.interval[1]
    parts = {next(iter(row.slices.items())): row for row in rows if row.slices}
    assert {("class", "disc"), ("class", "square"), ("size", "small")} <= set(parts)
    assert ("size", "medium") not in parts
    assert parts["class", "disc"].count == 3
    # Of 32 x 48 pixels: 8 x 8 are 1/24, 20 x 30 are 1/2.6, 10 x 16 are 1/9.6, 5 x 5 are 1/61; limits are 1/64 and 1/16.
    assert {key[1]: row.count for key, row in parts.items() if key[0] == "relative_size"} == {"medium": 3, "large": 3}
    assert halves[0].task.primary == rows[0].metric
    assert metric().rows() == []
