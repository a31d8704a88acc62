"""Likelihoods, calibration and selection against definitions that are written out, ties and edges and all."""

from __future__ import annotations

import math
from itertools import pairwise, permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.metrics.calibration import Calibration, expected_calibration_error
from sightline.metrics.likelihood import Likelihood
from sightline.metrics.selection import Selection
from tests.batches import labelled


def measured(kind, logits, labels, link="softmax", cuts=()):
    """The rows of a metric by name and slice; batches between the cuts go to two of its kind, which are merged."""
    task = SimpleNamespace(config=SimpleNamespace(score_link=link), groups={})
    here, there = kind(task), kind(task)
    ends = sorted({0, *(cut for cut in cuts if cut < len(labels)), len(labels)})
    for number, (start, end) in enumerate(pairwise(ends)):
        part = torch.tensor(np.asarray(logits[start:end], np.float32))
        (here, there)[number % 2].update(part, labelled(labels[start:end]))
    here.merge(there)
    rows = here.rows()
    found = {(one.metric, *one.slices.items()): one for one in rows}
    assert len(found) == len(rows)
    return found


def chances_of(logits):
    """Of one image, in plain Python."""
    highest = max(logits)
    powers = [math.exp(one - highest) for one in logits]
    return [one / sum(powers) for one in powers]


def answer_of(logits):
    return max(range(len(logits)), key=lambda one: (logits[one], -one))


DRAWS = st.tuples(st.integers(0, 10_000), st.integers(1, 30), st.sampled_from([1, 2, 3, 10]), st.integers(0, 30))


def drawn(seed, count, classes, coarse):
    """Logits of few values, so that ties are the rule, with some that make a confidence of exactly 1."""
    draw = np.random.default_rng(seed)
    logits = draw.integers(0, 3, (count, classes)).astype(np.float64) * (1 + coarse / 10)
    sure = draw.random(count) < 0.2
    logits[sure, 0] += 1000
    return logits.astype(np.float32).astype(float).tolist(), draw.integers(0, classes, count).tolist()


@given(DRAWS)
def test_likelihoods(case):
    logits, labels = drawn(*case)
    found = measured(Likelihood, logits, labels, cuts=(3, 7))
    nll, brier = [], []
    for row, label in zip(logits, labels, strict=True):
        chances = chances_of(row)
        highest = max(row)
        nll.append(math.log(sum(math.exp(one - highest) for one in row)) - (row[label] - highest))
        brier.append(sum((chance - (number == label)) ** 2 for number, chance in enumerate(chances)))
    for name, values in (("nll", nll), ("brier", brier)):
        one = found[(name,)]
        assert one.value == pytest.approx(sum(values) / len(values), rel=1e-9, abs=1e-9)
        assert (one.count, one.better) == (len(values), "lower")
        if len(values) == 1:
            assert one.stderr is None
        else:
            assert one.stderr == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), rel=1e-6, abs=1e-9)


def in_bin(confidence, number, bins):
    return number / bins < confidence <= (number + 1) / bins or (number == 0 and confidence == 0)


def written_out(right, confidence, bins):
    total = 0.0
    for number in range(bins):
        inside = [one for one in range(len(right)) if in_bin(confidence[one], number, bins)]
        if inside:
            accuracy = sum(right[one] for one in inside) / len(inside)
            sure = sum(confidence[one] for one in inside) / len(inside)
            total += len(inside) / len(right) * abs(accuracy - sure)
    return total


@given(DRAWS, st.sampled_from(["softmax", "sigmoid"]))
def test_calibration(case, link):
    logits, labels = drawn(*case)
    found = measured(Calibration, logits, labels, link, cuts=(1, 8))
    right = [answer_of(row) == label for row, label in zip(logits, labels, strict=True)]
    softmax = [max(chances_of(row)) for row in logits]
    # A third and a half and so on lie on edges: what is a hair beside one there is on it.
    softmax = [round(one * 210) / 210 if abs(one * 210 - round(one * 210)) < 1e-9 else one for one in softmax]
    for name, bins in (("ece", 15), ("ece_30", 30)):
        assert found[(name,)].value == pytest.approx(written_out(right, softmax, bins), abs=1e-9)
    sigmoid = [1 / (1 + math.exp(-min(max(row), 700))) for row in logits]
    if link == "sigmoid":
        assert found[("ece_sigmoid",)].value == pytest.approx(written_out(right, sigmoid, 15), abs=1e-9)
    else:
        assert ("ece_sigmoid",) not in found
    for number in range(15):
        inside = [one for one in range(len(labels)) if in_bin(softmax[one], number, 15)]
        part = ("confidence_bin", number + 1)
        assert (("top1_in_bin", part) in found) == (("confidence", part) in found) == bool(inside)
        for name, values in (("top1_in_bin", right), ("confidence", softmax)) if inside else ():
            one = found[name, part]
            assert one.value == pytest.approx(sum(values[k] for k in inside) / len(inside), abs=1e-9)
            assert one.count == len(inside)
    by_bin = [(dict(key[1:])["confidence_bin"], one) for key, one in found.items() if key[0] == "top1_in_bin"]
    assert sum(one.count for _, one in by_bin) == len(labels)
    apart = sum(
        one.count * abs(one.value - found[("confidence", ("confidence_bin", number))].value) for number, one in by_bin
    )
    assert found[("ece",)].value == pytest.approx(apart / len(labels), abs=1e-9)


def test_calibration_error_by_hand():
    """Bins of 0.5: |1/2 - 0.3| of two images, |2/3 - 0.8| of three."""
    confidence = np.array([0.2, 0.4, 0.7, 0.8, 0.9])
    right = np.array([True, False, True, False, True])
    assert expected_calibration_error(confidence, right, bins=2) == pytest.approx((2 * 0.2 + 3 * (0.8 - 2 / 3)) / 5)


@given(DRAWS)
def test_bins_of_as_many_images_each_where_images_are_alike(case):
    """Whichever of those that are alike comes first: each is as right as all of them are."""
    logits, labels = drawn(*case)
    found = measured(Calibration, logits, labels, cuts=(2, 9))[("ece_adaptive",)]
    right = [answer_of(row) == label for row, label in zip(logits, labels, strict=True)]
    sure = [round(max(chances_of(row)), 6) for row in logits]
    apart = []
    for one in sorted(set(sure)):
        alike = [k for k in range(len(labels)) if sure[k] == one]
        apart += [sum(right[k] - max(chances_of(logits[k])) for k in alike) / len(alike)] * len(alike)
    small, more, total, start = len(labels) // 15, len(labels) % 15, 0.0, 0
    for number in range(15):
        inside = apart[start : start + small + (number < more)]
        start, total = start + len(inside), total + abs(sum(inside))
    assert found.value == pytest.approx(total / len(labels), abs=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 6), st.sampled_from(["softmax", "sigmoid"]))
def test_selection_is_the_mean_over_all_orders_of_images_that_are_alike(seed, count, link):
    draw = np.random.default_rng(seed)
    logits = draw.integers(0, 2, (count, 2)).astype(float).tolist()
    labels = draw.integers(0, 2, count).tolist()
    found = measured(Selection, logits, labels, link, cuts=(2,))
    score = [max(row) if link == "sigmoid" else round(max(chances_of(row)), 9) for row in logits]
    wrong = [answer_of(row) != label for row, label in zip(logits, labels, strict=True)]
    orders = [one for one in permutations(range(count)) if sorted(score, reverse=True) == [score[k] for k in one]]
    areas, halves = [], []
    for order in orders:
        risks = [sum(wrong[one] for one in order[:k]) / k for k in range(1, count + 1)]
        areas.append(sum(risks) / count)
        halves.append(1 - risks[math.ceil(count / 2) - 1])
    assert found[("aurc",)].value == pytest.approx(sum(areas) / len(areas), abs=1e-9)
    half = found[("top1_answered", ("coverage", 0.5))]
    assert half.value == pytest.approx(sum(halves) / len(halves), abs=1e-9)
    assert half.count == math.ceil(count / 2)


@given(DRAWS, st.sampled_from(["softmax", "sigmoid"]))
def test_selection_of_any_classes(case, link):
    """One image, one class, confidences of exactly 1: the expected share of wrong answers among the k surest, where
    those that are alike are drawn by lot."""
    logits, labels = drawn(*case)
    found = measured(Selection, logits, labels, link, cuts=(4,))
    score = [max(row) if link == "sigmoid" else round(max(chances_of(row)), 6) for row in logits]
    wrong = [answer_of(row) != label for row, label in zip(logits, labels, strict=True)]
    risks = []
    for k in range(1, len(labels) + 1):
        last = sorted(score, reverse=True)[k - 1]
        surer = [one for one in range(len(labels)) if score[one] > last]
        alike = [one for one in range(len(labels)) if score[one] == last]
        lost = sum(wrong[one] for one in surer) + (k - len(surer)) * sum(wrong[one] for one in alike) / len(alike)
        risks.append(lost / k)
    assert found[("aurc",)].value == pytest.approx(sum(risks) / len(risks), abs=1e-9)
    for share in (0.5, 0.8, 0.9):
        count = next(k for k in range(1, len(labels) + 1) if k / len(labels) >= share - 1e-12)
        one = found[("top1_answered", ("coverage", share))]
        assert (one.value, one.count) == (pytest.approx(1 - risks[count - 1], abs=1e-9), count)
