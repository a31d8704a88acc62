"""Calibration, on numbers that were worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_nothing_to_measure_is_refused():
    with pytest.raises(InputError, match="0 images in 15 bins"):
        expected_calibration_error(np.zeros(0), np.zeros(0, bool))
