"""Sentences about what was found inside models follow from intervals alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sightline.reports.analysis_words import DIVERSITY, LENS_MIOU, ReachedExtreme, lookhere_sentence, over_images

LOOKHERE = ReachedExtreme("lookhere_90", 0.5, (0.45, 0.55))


def sentence(*found, **options):
    return lookhere_sentence(found, *LENS_MIOU, unit="fraction", at="64 px", **options)


def test_higher_where_all_intervals_lie_below():
    said = sentence(
        LOOKHERE, ReachedExtreme("rope_axial", 0.3, (0.2, 0.44)), ReachedExtreme("learned_1d", 0.1, (0.05, 0.15))
    )
    assert said.startswith("At 64 px, LookHere's logit-lens mIoU is higher, as its paper found (figure 5): lookhere_90")
    assert "50.0\u00a0% [45.0,\u00a055.0]" in said
    assert "of one training each" in said


def test_lower_is_other_than_the_paper_found():
    said = sentence(LOOKHERE, ReachedExtreme("rope_axial", 0.7, (0.6, 0.8)))
    assert "is lower, other than its paper found" in said
    assert "as its paper found" in sentence(LOOKHERE, ReachedExtreme("rope_axial", 0.7, (0.6, 0.8)), paper_higher=False)


@pytest.mark.parametrize("high", [0.45, 0.46, 0.6])
def test_no_verdict_where_an_interval_overlaps(high):
    """Also where the mean itself lies apart, and where they touch."""
    said = sentence(
        LOOKHERE, ReachedExtreme("rope_axial", 0.3, (0.2, high)), ReachedExtreme("learned_1d", 0.1, (0.05, 0.15))
    )
    assert said.startswith("At 64 px, no verdict on logit-lens mIoU as a whole")
    assert "LookHere's is higher than that of learned_1d; its interval and that of rope_axial overlap" in said
    assert "as its paper found" not in said


def test_each_lookhere_must_lie_above():
    other = ReachedExtreme("rope_axial", 0.48, (0.46, 0.49))
    high = ReachedExtreme("lookhere_180", 0.6, (0.58, 0.62), "runs/a")
    assert "is higher, as" in sentence(high, other)
    assert "no verdict" in sentence(high, LOOKHERE, other)
    assert "runs/a 60.0" in sentence(high, LOOKHERE, other)


def test_both_ways():
    said = sentence(
        LOOKHERE, ReachedExtreme("rope_axial", 0.7, (0.6, 0.8)), ReachedExtreme("learned_1d", 0.1, (0.05, 0.15))
    )
    assert "higher than that of learned_1d; LookHere's is lower than that of rope_axial" in said
    assert "no verdict" in said


def test_nothing_to_compare():
    assert "no verdict" in sentence(LOOKHERE)
    assert "one with another encoding is missing" in sentence(LOOKHERE)
    assert "a model with LookHere is missing" in sentence(ReachedExtreme("rope_axial", 0.3, (0.2, 0.4)))
    assert lookhere_sentence([], *DIVERSITY) == (
        "No verdict on head diversity: a model with LookHere is missing (nothing was measured)."
    )
    for unknown in (
        ReachedExtreme("rope_axial", 0.3, None),
        ReachedExtreme("rope_axial", math.nan, (math.nan, math.nan)),
    ):
        assert "no verdict on logit-lens mIoU: no interval over images of rope_axial" in sentence(LOOKHERE, unknown)


def test_two_encodings_together_are_lookheres_where_one_is():
    both = ReachedExtreme("lookhere_90+learned_1d", 0.5, (0.45, 0.55))
    assert "is higher" in sentence(both, ReachedExtreme("rope_axial+learned_1d", 0.3, (0.2, 0.4)))


def test_the_mean_over_images():
    values = np.array([[1.0, 3.0], [2.0, 6.0], [np.nan, 5.0], [np.nan, np.nan]])
    mean, interval, images = over_images(values)
    each = np.array([2.0, 4.0, 5.0])
    reach = 1.959964 * each.std(ddof=1) / 3**0.5
    assert (mean, images) == (pytest.approx(each.mean()), 3)
    assert interval == pytest.approx((each.mean() - reach, each.mean() + reach))
    assert over_images(values[:1])[1] is None
    assert over_images(values[3:])[2] == 0
    assert over_images(np.zeros((0, 4)))[2] == 0
