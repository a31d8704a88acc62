"""Accuracy against a brute force that sorts and counts, ties and all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.tasks.classification import Predictions, accuracies, classification_loss


def predictions(logits, labels, groups=None, sizes=None) -> Predictions:
    count = len(labels)
    return Predictions(
        logits=np.asarray(logits, np.float32),
        labels=np.asarray(labels, np.int64),
        groups=groups or [None] * count,
        sizes=np.asarray([np.nan] * count if sizes is None else sizes, np.float32),
        seconds=0.0,
    )


def ranking(logits, among=None):
    """Classes from the best to the worst; of equals the first."""
    among = range(len(logits)) if among is None else among
    return sorted(among, key=lambda one: (-logits[one], one))


def shares(measured):
    """(metric, slice) -> (fraction, images)."""
    assert {(one.unit, one.better, one.counted) for one in measured} <= {("fraction", "higher", "images")}
    found = {(one.metric, *one.slices.items()): (one.value, one.count) for one in measured}
    assert len(found) == len(measured)
    return found


GROUPS = {"a": (0, 4), "b c": (1, 2, 6)}


@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from([3, 5, 7, 12]))
def test_against_brute_force(seed, count, classes):
    draw = np.random.default_rng(seed)
    # Few values, so that ties are the rule.
    logits = draw.integers(0, 4, (count, classes)).astype(np.float32)
    labels = draw.integers(0, classes, count)
    groups = {name: [one for one in members if one < classes] for name, members in GROUPS.items()}
    of = [next((name for name, members in groups.items() if label in members), None) for label in labels]
    sizes = draw.permutation(count)
    found = shares(accuracies(predictions(logits, labels, of, sizes), groups))

    right = [ranking(row)[0] == label for row, label in zip(logits, labels, strict=True)]
    in_five = [label in ranking(row)[:5] for row, label in zip(logits, labels, strict=True)]
    expected = {("top1",): right, ("top5",): in_five}
    for name in groups:
        expected["top1", ("group", name)] = [one for one, group in zip(right, of, strict=True) if group == name]
    expected["top1_within_group",] = [
        ranking(row, groups[group])[0] == label
        for row, label, group in zip(logits, labels, of, strict=True)
        if group is not None
    ]
    if count >= 5:
        by_size = [right[one] for one in np.argsort(sizes)]
        for number in range(5):
            # The first parts are the larger ones where five does not divide the number.
            ends = [sum(count // 5 + (part < count % 5) for part in range(upto)) for upto in (number, number + 1)]
            expected["top1", ("size_quintile", number + 1)] = by_size[ends[0] : ends[1]]
    expected = {name: part for name, part in expected.items() if part}
    assert set(found) == set(expected)
    for name, part in expected.items():
        assert found[name] == (pytest.approx(sum(part) / len(part)), len(part)), name


def test_a_model_that_says_the_same_of_all_is_right_by_chance_alone():
    """Equal logits name one class; they are not right about every class."""
    found = shares(accuracies(predictions(np.zeros((10, 10)), range(10)), {}))
    assert found == {("top1",): (0.1, 10), ("top5",): (0.5, 10)}


def test_nothing_measured_is_no_metric():
    assert accuracies(predictions(np.zeros((0, 3)), []), {}) == []
    for sizes in ([1, 2, 3, 4], [1, 2, 3, 4, 5, np.nan]):
        said = predictions(np.zeros((len(sizes), 3)), [0] * len(sizes), sizes=sizes)
        assert set(shares(accuracies(said, {}))) == {("top1",), ("top5",)}


def test_losses_in_numbers():
    import torch

    logits = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.0, 3.0]])
    labels = torch.tensor([0, 1])
    target = torch.tensor([[1.0, 0, 0], [0, 1, 0]])
    ce = -(logits.log_softmax(1) * target).sum(1).mean()
    torch.testing.assert_close(classification_loss(logits, labels, "ce"), ce)
    bce = -(target * logits.sigmoid().log() + (1 - target) * (-logits).sigmoid().log()).sum(1).mean()
    torch.testing.assert_close(classification_loss(logits, labels, "bce"), bce)
    smooth = target * 0.7 + 0.1
    ce = -(logits.log_softmax(1) * smooth).sum(1).mean()
    torch.testing.assert_close(classification_loss(logits, labels, "ce", 0.3), ce)
    bce = -(smooth * logits.sigmoid().log() + (1 - smooth) * (-logits).sigmoid().log()).sum(1).mean()
    torch.testing.assert_close(classification_loss(logits, labels, "bce", 0.3), bce)
    assert classification_loss(logits.bfloat16(), labels, "bce").dtype == torch.float32
