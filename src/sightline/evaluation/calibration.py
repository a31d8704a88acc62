"""How sure a model says it is, and whether it is right as often as that (NaViT appendix F)."""

from __future__ import annotations

import numpy as np

from sightline.errors import InputError

BINS = 15


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """The mean over images of |accuracy - mean confidence| of their bin: equal widths over [0, 1], L1, top class.

    Args:
        confidence: [images] in [0, 1]; a bin holds its upper end, the first also 0.
        right: bool [images].

    Raises:
        InputError: there is no image, or no bin.
    """
    if bins < 1 or not len(confidence):
        raise InputError(f"ece of {len(confidence)} images in {bins} bins: expected at least one of each")
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    # |accuracy - confidence| x images of a bin is the absolute sum of their differences.
    return float(np.abs(np.bincount(place, right - confidence, minlength=bins)).sum() / len(confidence))
