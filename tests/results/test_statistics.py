"""Tests of pairs, seeds and orders: values by hand, and scipy's."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from sightline.errors import InputError
from sightline.results.statistics import (
    bootstrap_intervals,
    cohens_h,
    holm,
    mcnemar,
    rank_correlation,
    student_interval,
)


def right(*counts):
    """Two models that are both right, the first alone, the second alone, and both wrong so many times."""
    pairs = ((True, True), (True, False), (False, True), (False, False))
    found = np.array([pair for pair, count in zip(pairs, counts, strict=True) for _ in range(count)], bool)
    return found[:, 0], found[:, 1]


def test_mcnemar_by_hand():
    """9 against 2: twice (1 + 11 + 55) of 2,048."""
    found = mcnemar(*right(50, 9, 2, 30))
    assert (found.first, found.second) == (9, 2)
    assert found.p == pytest.approx(2 * 67 / 2048, abs=1e-12)
    # The other way round it is the same test.
    assert mcnemar(*right(50, 2, 9, 30)).p == found.p


def test_effect_size():
    """Cohen's own example: .65 and .45 have phi 1.875 and 1.471."""
    assert cohens_h(0.65, 0.45) == pytest.approx(1.875 - 1.471, abs=2e-3)
    assert cohens_h(0.45, 0.65) == -cohens_h(0.65, 0.45)
    assert cohens_h(1, 0) == pytest.approx(math.pi)
    with pytest.raises(InputError, match=r"1\.2"):
        cohens_h(0.1, 1.2)


def test_the_bootstrap_of_differences():
    one, other = right(300, 60, 30, 110)
    gaps = (one.astype(float) - other)[:, None]
    gap, ((low, high),) = float(gaps.mean()), bootstrap_intervals(gaps)
    # Of so many images as the normal approximation: the deviation of a difference of pairs.
    reach = 1.96 * math.sqrt((90 / 500 - gap**2) / 500)
    assert (low, high) == pytest.approx((gap - reach, gap + reach), abs=0.003)
    assert bootstrap_intervals(gaps) == [(low, high)]
    assert bootstrap_intervals(gaps, seed=1) != [(low, high)]


def test_a_bootstrap_of_few_is_that_of_all_its_draws():
    """Three images have 27 draws, whose quantiles are written out; columns are drawn together."""
    values = np.array([0.0, 1.0, 5.0])
    every = [np.mean(draw) for draw in itertools.product(values, repeat=3)]
    (low, high), twice = bootstrap_intervals(np.stack([values, 2 * values], axis=1), resamples=2_000)
    assert (low, high) == pytest.approx(tuple(np.quantile(every, (0.025, 0.975), method="inverted_cdf")), abs=1e-9)
    assert twice == pytest.approx((2 * low, 2 * high))
    assert bootstrap_intervals(np.array([[0.25]])) == [(0.25, 0.25)]
    for wrong in (np.zeros(3), np.zeros((0, 2))):
        with pytest.raises(InputError, match="columns"):
            bootstrap_intervals(wrong)


def test_means_over_seeds():
    """Student's t of two degrees of freedom: 4.3027; of one: 12.706."""
    mean, interval = student_interval([0.5, 0.7, 0.9])
    reach = 4.30265 * 0.2 / math.sqrt(3)
    assert mean == pytest.approx(0.7)
    assert interval == pytest.approx((0.7 - reach, 0.7 + reach), abs=1e-6)
    assert student_interval([1.0, 3.0])[1] == pytest.approx((2 - 12.7062, 2 + 12.7062), abs=1e-4)
    assert student_interval([0.4]) == (0.4, None)
    assert student_interval([0.4, 0.4])[1] == (0.4, 0.4)
    with pytest.raises(InputError, match="mean"):
        student_interval([])


def test_holms_adjustment():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([]) == []


@pytest.mark.parametrize("kind", ["spearman", "kendall"])
@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlation_is_scipys(kind, ties):
    draws = np.random.default_rng(3)
    first, second = draws.normal(size=10), draws.normal(size=10)
    first += second
    if ties:
        first, second = np.round(first), np.round(second)
    found = rank_correlation([[value] for value in first], second, kind)
    theirs = {"spearman": stats.spearmanr, "kendall": stats.kendalltau}[kind](first, second)
    assert found.value == pytest.approx(theirs.statistic, abs=1e-12)
    if not ties:
        assert found.p == pytest.approx(theirs.pvalue, abs=0.012)
    low, high = found.interval
    assert -1 <= low < found.value < high <= 1
    assert found.over_seeds is None
    assert rank_correlation([[value] for value in first], second, kind) == found


def test_rank_correlation_over_seeds():
    """Seeds that all agree give one order; those that lie among each other an interval."""
    apart = rank_correlation([[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]], [1.0, 2.0, 3.0], "kendall")
    assert apart.over_seeds == (1, 1)
    mixed = rank_correlation([[1.0, 3.0], [2.0, 2.5], [1.5, 3.5]], [1.0, 2.0, 3.0], "kendall")
    assert mixed.over_seeds is not None
    assert mixed.over_seeds[0] < 0 < mixed.over_seeds[1]
    # One of them has one seed alone.
    assert rank_correlation([[1.0, 3.0], [2.0], [1.5]], [1.0, 2.0, 3.0], "kendall").over_seeds is None
