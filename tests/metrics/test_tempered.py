"""Measures at a temperature against definitions that are written out: ties, confidences of 1, one class, one image."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.metrics.tempered import Temperature, Tempered, with_temperature
from tests.batches import labelled
from tests.metrics.test_of_logits import DRAWS, answer_of, chances_of, drawn, written_out


def measured(logits, labels, temperature, cut=0):
    """By metric; the images from `cut` on are seen by another one."""
    task = with_temperature(SimpleNamespace(), temperature)
    here, there = Tempered(task), Tempered(task)
    for metric, part in ((here, slice(0, cut)), (there, slice(cut, None))):
        if labels[part]:
            metric.update(torch.tensor(logits[part], dtype=torch.float32), labelled(labels[part]))
    here.merge(there)
    return {row.metric: row for row in here.rows()}


# 1 leaves all as it is.
@given(DRAWS, st.sampled_from([0.01, 0.5, 1.0, 2.5, 100.0]), st.sampled_from([None, 0.5, 3.0]))
def test_each_is_its_namesake_of_divided_logits(case, softmax, sigmoid):
    logits, labels = drawn(*case)
    found = measured(logits, labels, Temperature("minival", 7, softmax, sigmoid), cut=case[1] // 2)
    divided = [[one / softmax for one in row] for row in logits]
    right = [answer_of(row) == label for row, label in zip(logits, labels, strict=True)]
    chances = [chances_of(row) for row in divided]
    nll = [
        math.log(sum(math.exp(one - max(row)) for one in row)) - row[label] + max(row)
        for row, label in zip(divided, labels, strict=True)
    ]
    brier = [
        sum((one - (number == label)) ** 2 for number, one in enumerate(row))
        for row, label in zip(chances, labels, strict=True)
    ]
    expected = {
        "temperature": softmax, "nll_tempered": np.mean(nll), "brier_tempered": np.mean(brier),
        "ece_tempered": written_out(right, edged(max(row) for row in chances), 15),
    }  # fmt: skip
    if sigmoid is not None:
        scores = edged(1 / (1 + math.exp(-min(max(row) / sigmoid, 700))) for row in logits)
        expected |= {"temperature_sigmoid": sigmoid, "ece_sigmoid_tempered": written_out(right, scores, 15)}
    assert {name: row.value for name, row in found.items()} == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert {row.slices["fitted_on"] for row in found.values()} == {"minival"}
    for name, row in found.items():
        assert (row.count, row.better) == ((7, "") if name.startswith("temperature") else (len(labels), "lower"))


def edged(scores):
    """What is a hair beside an edge of fifteen is on it."""
    return [round(one * 15) / 15 if abs(one * 15 - round(one * 15)) < 1e-9 else one for one in scores]
