"""Accuracy against a brute force that sorts and counts, ties and all."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.metrics.accuracy import Accuracy
from tests.batches import labelled


def counted(logits, labels, groups=None, *, of=None, sizes=None, cuts=()):
    """What is counted of these images, cut into batches at `cuts`, every second of them seen by another counter."""
    slices = [
        {name: value for name, value in (("group", group), ("size", size)) if value is not None}
        for group, size in zip(
            of or [None] * len(labels), [None] * len(labels) if sizes is None else sizes, strict=True
        )
    ]
    here, there = (Accuracy(SimpleNamespace(groups=groups or {})) for _ in range(2))
    ends = [0, *sorted(cuts), len(labels)]
    for number, (start, end) in enumerate(pairwise(ends)):
        part = slice(start, end)
        outputs = torch.tensor(np.asarray(logits[part], np.float32))
        batch = dataclasses.replace(labelled(labels[part], slices[part]), indices=torch.arange(start, end))
        (here, there)[number % 2].update(outputs, batch)
    here.merge(there)
    return here.rows()


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


@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from([1, 2, 3, 5, 7, 12]), st.integers(0, 3))
def test_against_brute_force(seed, count, classes, cuts):
    draw = np.random.default_rng(seed)
    # Few values, so that ties are the rule.
    logits = draw.integers(0, 4, (count, classes)).astype(np.float32)
    labels = draw.integers(0, classes, count)
    groups = {name: [one for one in members if one < classes] for name, members in GROUPS.items()}
    of = [next((name for name, members in groups.items() if label in members), None) for label in labels]
    # Some are equally large: the one that comes first is the smaller.
    sizes = draw.permutation(count) // draw.integers(1, 4)
    places = draw.integers(0, count + 1, cuts)
    rows = counted(logits, labels, groups, of=of, sizes=sizes.tolist(), cuts=places)
    found = shares(rows)
    assert rows[0].metric == "top1"
    assert not rows[0].slices

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
        by_size = [right[one] for one in sorted(range(count), key=lambda one: (sizes[one], one))]
        for number in range(5):
            # The first parts are the larger ones where five does not divide the number.
            ends = [sum(count // 5 + (part < count % 5) for part in range(upto)) for upto in (number, number + 1)]
            expected["top1", ("size_quintile", number + 1)] = by_size[ends[0] : ends[1]]
    expected = {name: part for name, part in expected.items() if part}
    assert set(found) == set(expected)
    for name, part in expected.items():
        assert found[name] == (pytest.approx(sum(part) / len(part)), len(part)), name


def test_nothing_measured_is_no_metric():
    assert Accuracy(SimpleNamespace(groups={})).rows() == []
    assert counted(np.zeros((0, 3)), []) == []
    for sizes in ([1, 2, 3, 4], [1, 2, 3, 4, 5, np.nan]):
        for cuts in ((), (2,)):
            rows = counted(np.zeros((len(sizes), 3)), [0] * len(sizes), sizes=sizes, cuts=cuts)
            assert set(shares(rows)) == {("top1",), ("top5",)}
    # Where a size is not known it is not said.
    rows = counted(np.zeros((6, 3)), [0] * 6, sizes=[1, 2, 3, None, 5, 6])
    assert set(shares(rows)) == {("top1",), ("top5",)}
