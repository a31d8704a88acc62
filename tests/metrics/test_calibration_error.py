"""Calibration, on numbers that were worked out by hand."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.metrics.calibration import expected_calibration_error


def test_error_by_hand():
    """Bins of 0.5: |1/2 - 0.3| of two images, |2/3 - 0.8| of three."""
    confidence = np.array([0.2, 0.4, 0.7, 0.8, 0.9])
    right = np.array([True, False, True, False, True])
    assert expected_calibration_error(confidence, right, bins=2) == pytest.approx((2 * 0.2 + 3 * (0.8 - 2 / 3)) / 5)


def test_a_bin_holds_its_upper_end():
    """0.5 is with 0.4 and not with 0.9; 0 and 1 are in a bin too."""
    error = expected_calibration_error(np.array([0.4, 0.5, 0.9]), np.array([False, True, False]), bins=2)
    assert error == pytest.approx((0.1 + 0.9) / 3)
    assert expected_calibration_error(np.array([0.0, 1.0]), np.array([True, False]), bins=2) == 1


def test_right_as_often_as_it_says_is_no_error():
    draws = np.random.default_rng(1)
    confidence = draws.uniform(0, 1, 200_000)
    right = draws.uniform(0, 1, 200_000) < confidence
    assert expected_calibration_error(confidence, right) < 0.005
    assert expected_calibration_error(confidence, ~right) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "classes", "bins"), [(0, 3, 15), (1, 10, 15), (2, 1000, 15), (3, 10, 30), (4, 2, 7)])
def test_torchmetrics_says_the_same_away_from_edges(seed, classes, bins):
    """On an edge it takes the upper bin, for 1 one of its own (torchmetrics #3510); Guo et al. take the lower one."""
    # It brings torchvision, where that can be imported beside this torch.
    import_timm()
    theirs = importlib.import_module("torchmetrics.functional.classification").multiclass_calibration_error
    draw = torch.Generator().manual_seed(seed)
    chances = (3 * torch.randn(2000, classes, generator=draw, dtype=torch.float64)).softmax(-1)
    labels = torch.multinomial(chances, 1, generator=draw)[:, 0]
    confidence, answers = chances.max(-1)
    apart = ((confidence * bins) - (confidence * bins).round()).abs() > 1e-4
    assert apart.sum() > 1000
    expected = theirs(chances[apart], labels[apart], classes, n_bins=bins, norm="l1")
    right = (answers == labels)[apart].numpy()
    ours = expected_calibration_error(confidence[apart].numpy(), right, bins)
    assert ours == pytest.approx(float(expected), abs=1e-6)
    assert ours > 1e-3


def test_nothing_to_measure_is_refused():
    with pytest.raises(InputError, match="0 images in 15 bins"):
        expected_calibration_error(np.zeros(0), np.zeros(0, bool))
