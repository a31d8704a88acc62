"""Mean IoU against what it is by definition, image by image and pixel by pixel."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data.batch import Batch
from sightline.data.targets import IGNORE
from sightline.metrics.iou import MeanIou
from sightline.models import ViTConfig
from sightline.tasks.segmentation import Segmentation, SegmentationOptions
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout


def task_of(classes, names=None):
    """A task of so many classes."""
    names = names or ["background", *map(str, range(1, classes))]
    config = ViTConfig(patch_size=4, num_classes=classes, class_names=tuple(names), head="pix", image_size=8)
    return Segmentation(config, SegmentationOptions())


def batch_of(labels, grid):
    count = len(labels)
    targets = {"pixels": [torch.from_numpy(one) for one in labels]}
    layout = TokenLayout.packed([grid] * count)
    return Batch(torch.zeros(1, 0, 0), layout, targets, torch.arange(count), [""] * count, [{}] * count)


def measured(answers, labels, classes, cuts=(), names=None):
    """The rows of images whose likeliest classes are `answers`, seen in parts by two counters."""
    task, ends = task_of(classes, names), [0, *sorted(cuts), len(labels)]
    here, there = MeanIou(task), MeanIou(task)
    for number, (start, end) in enumerate(pairwise(ends)):
        maps = [torch.eye(classes)[torch.from_numpy(one).long()].permute(2, 0, 1)[None] for one in answers[start:end]]
        if maps:
            (here, there)[number % 2].update(maps, batch_of(labels[start:end], Grid(2, 3)))
    here.merge(there)
    return here.rows()


def values(rows):
    return {(row.metric, *row.slices.values()): row.value for row in rows}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(2, 7))
def test_against_the_definition(seed, images, classes):
    draw = np.random.default_rng(seed)
    there = draw.choice(classes, draw.integers(1, classes + 1), replace=False)
    labels = [draw.choice([*there, IGNORE], (8, 12)).astype(np.uint8) for _ in range(images)]
    answers = [draw.integers(0, classes, (8, 12)).astype(np.uint8) for _ in range(images)]
    found = values(measured(answers, labels, classes, cuts=draw.integers(0, images + 1, 2).tolist()))
    truth, said = np.concatenate(labels).ravel(), np.concatenate(answers).ravel()
    truth, said = truth[truth != IGNORE], said[truth != IGNORE]
    ious = {}
    for one in range(classes):
        either = ((truth == one) | (said == one)).sum()
        if either:
            ious[one] = ((truth == one) & (said == one)).sum() / either
    if not len(truth):
        assert found == {}
        return
    assert found["miou",] == pytest.approx(np.mean(list(ious.values())), abs=1e-12)
    assert found["pixel_accuracy",] == pytest.approx((truth == said).mean(), abs=1e-12)
    names = task_of(classes).names
    assert {key[1]: value for key, value in found.items() if key[0] == "iou"} == pytest.approx(
        {names[one]: value for one, value in ious.items()}, abs=1e-12
    )
    either = ((truth > 0) | (said > 0)).sum()
    if either:
        assert found["foreground_iou",] == pytest.approx(((truth > 0) & (said > 0)).sum() / either, abs=1e-12)


def test_absent_and_ignored_classes_by_hand():
    labels = np.array([[0, 0, 1, IGNORE]] * 4, np.uint8).repeat(3, axis=1)[:, :12].repeat(2, axis=0)
    answers = np.array([[0, 2, 1, 1]] * 4, np.uint8).repeat(3, axis=1)[:, :12].repeat(2, axis=0)
    found = values(measured([answers], [labels], 4))
    # Half of the background is right; 1 is, and what has no label counts nowhere; 2 is only answered; 3 is nowhere.
    assert found == {
        ("miou",): pytest.approx((0.5 + 1 + 0) / 3),
        ("pixel_accuracy",): pytest.approx(2 / 3),
        ("foreground_iou",): pytest.approx(0.5),
        ("iou", "background"): 0.5,
        ("iou", "1"): 1.0,
        ("iou", "2"): 0.0,
        # Of 8 x 6 pixels the outermost, of 8 x 3 the same; a column and four corners more are in both.
        ("boundary_iou", "background"): pytest.approx(12 / (24 + 18 - 12)),
        ("boundary_iou", "1"): 1.0,
        ("boundary_iou", "2"): 0.0,
        ("boundary_iou",): pytest.approx((0.4 + 1 + 0) / 3),
    }
    assert ("foreground_iou",) not in values(measured([answers], [labels], 4, names=["wall", "b", "c", "d"]))


def test_intervals_hold_the_value_and_shrink_with_images():
    draw, widths = np.random.default_rng(0), []
    for images in (10, 160):
        labels = [draw.integers(0, 3, (8, 12)).astype(np.uint8) for _ in range(images)]
        answers = [np.where(draw.random((8, 12)) < draw.random(), one, 0).astype(np.uint8) for one in labels]
        rows = measured(answers, labels, 3)
        assert all(row.interval[0] <= row.value <= row.interval[1] for row in rows)
        assert {row.unit for row in rows} == {"", "share of pixels"}
        widths.append(rows[0].interval[1] - rows[0].interval[0])
    assert widths[1] < widths[0] / 2
    assert MeanIou(task_of(3)).rows() == []


def test_labels_of_another_size_than_the_answers_are_scored_at_their_own():
    task, metric = task_of(2), MeanIou(task_of(2))
    maps = torch.zeros(1, 2, 8, 12)
    maps[:, 1, :, 6:] = 1
    maps[:, 0, :, :6] = 1
    labels = np.zeros((30, 44), np.uint8)
    labels[:, 22:] = 1
    metric.update([maps], batch_of([labels], Grid(2, 3)))
    assert values(metric.rows())["miou",] == 1.0
    assert task.names == ["background", "1"]


def test_a_class_that_is_only_answered_is_counted_where_it_is() -> None:
    """A row of no image would be refused by a report."""
    labels = [np.zeros((8, 12), np.uint8), np.zeros((8, 12), np.uint8)]
    answers = [one.copy() for one in labels]
    answers[1][2, 3] = 2
    rows = [row for row in measured(answers, labels, 4) if row.metric == "iou"]
    assert [(row.slices["class"], row.value, row.count) for row in rows] == [("background", 191 / 192, 2), ("2", 0, 1)]
