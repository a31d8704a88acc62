"""What can be said of two models on the same images, of trainings with several seeds, and of two orders: numbers with
their interval or p, and no verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sightline.errors import InputError

Interval = tuple[float, float]
Coefficient = Literal["spearman", "kendall"]
LEVEL = 0.95
RESAMPLES = 10_000
# So many numbers of a bootstrap are in memory at once.
_TOGETHER = 4_000_000


@dataclass(frozen=True)
class McNemar:
    """McNemar's test of two models on the same images (McNemar, 1947), in its exact conditional form.

    Attributes:
        first: Images that only the first model classifies correctly.
        second: Images that only the second model classifies correctly.
        p: Two-sided p of a binomial distribution of first + second images with chance 1/2: twice the smaller tail, at
            most 1; 1 if the models differ on no image.
    """

    first: int
    second: int
    p: float


def mcnemar(first: NDArray[Any], second: NDArray[Any]) -> McNemar:
    """The exact test of whether two models are equally often right.

    Args:
        first: bool [images], whether the first model is right.
        second: the same of the second model, of the same images in the same order.

    Raises:
        InputError: they are of different shapes.
    """
    from scipy.stats import binomtest

    one, other = np.asarray(first, bool), np.asarray(second, bool)
    if one.shape != other.shape or one.ndim != 1 or not len(one):
        raise InputError(f"right answers {list(one.shape)} and {list(other.shape)}: expected the same images, some")
    b, c = int((one & ~other).sum()), int((other & ~one).sum())
    return McNemar(b, c, float(binomtest(b, b + c).pvalue) if b + c else 1.0)


def signed_rank(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p of Wilcoxon's signed-rank test (Wilcoxon, 1945) of paired values, equal pairs left out: exact for
    up to 50 without ties; 1 where all are equal."""
    from scipy.stats import wilcoxon

    found: Any = wilcoxon(first, second) if list(first) != list(second) else None
    return 1.0 if found is None else float(found.pvalue)


def cohens_h(first: float, second: float) -> float:
    """Cohen's h of two proportions, 2 asin(sqrt(first)) - 2 asin(sqrt(second)): an effect size, of which he calls .2
    small, .5 medium and .8 large (Cohen, 1988, chapter 6).

    Raises:
        InputError: one is no fraction.
    """
    for value in (first, second):
        if not 0 <= value <= 1:
            raise InputError(f"proportion {value}: expected 0 to 1")
    return 2 * math.asin(math.sqrt(first)) - 2 * math.asin(math.sqrt(second))


def bootstrap_intervals(values: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0) -> list[Interval]:
    """Where the mean over images lies with 95 %, by images drawn again with replacement: the percentile interval (Efron
    and Tibshirani, 1993, chapter 13). Of differences between two models it is the paired bootstrap.

    Args:
        values: [images, columns]; all columns have the same images drawn.

    Returns:
        One interval a column.

    Raises:
        InputError: there is no image, or the values are no table.
    """
    from scipy.stats import bootstrap

    table = np.asarray(values, np.float64)
    if table.ndim != 2 or not len(table):
        raise InputError(f"values {list(table.shape)}: expected [images, columns] of at least one image")
    if len(table) == 1:
        return [(value, value) for value in table[0].tolist()]
    found: Any = bootstrap(
        (table,), np.mean, n_resamples=resamples, batch=max(_TOGETHER // table.size, 1), method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return list(zip(found.low.tolist(), found.high.tolist(), strict=True))


def student_interval(values: Sequence[float]) -> tuple[float, Interval | None]:
    """The mean of several trainings, and where the mean of all trainings lies with 95 % (Student's t with one degree of
    freedom less than there are); None of one.

    Raises:
        InputError: there is none.
    """
    from scipy.stats import t

    if not values:
        raise InputError("mean of no value: expected at least one")
    mean = fmean(values)
    if len(values) < 2:
        return mean, None
    reach = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean, (mean - reach, mean + reach)


def holm(ps: Sequence[float]) -> list[float]:
    """Each p adjusted for that many tests (Holm, 1979): below alpha for all at once with at most that chance of one
    false finding."""
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted


@dataclass(frozen=True)
class Correlation:
    """How alike two orders are.

    Attributes:
        value: Spearman's rho, or Kendall's tau-b; nan where one of the two does not vary.
        interval: 95 %, percentile bootstrap over what is ordered; None where too few draws vary.
        p: two-sided, of a permutation test: the share of random orders that are as far from 0, this one counted.
        over_seeds: 95 % of what other trainings would give, percentile bootstrap over the seeds of each thing; None
            where one has a single seed.
    """

    value: float
    interval: Interval | None
    p: float
    over_seeds: Interval | None = None


def rank_correlation(
    first: Sequence[Sequence[float]],
    second: Sequence[float],
    kind: Coefficient,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Correlation:
    """The rank correlation of what was measured with an order that is given.

    Args:
        first: of each thing the values of its seeds, whose means are ordered; second: of each thing one number.

    Raises:
        InputError: they are not of as many things, at least three.
    """
    means = np.array([fmean(values) for values in first])
    given = np.asarray(second, np.float64)
    if len(means) != len(given) or len(means) < 3:
        raise InputError(f"orders of {len(means)} and {len(given)} things: expected as many, and at least 3")
    draws = np.random.default_rng(seed)
    value = float(_coefficients(means[None], given[None], kind)[0])
    drawn = draws.integers(len(means), size=(resamples, len(means)))
    among = _coefficients(means[drawn], given[drawn], kind)
    shuffled = draws.permuted(np.broadcast_to(means, drawn.shape), axis=1)
    others = _coefficients(shuffled, np.broadcast_to(given, drawn.shape), kind)
    # Sums of the same numbers in another order differ in their last digits.
    p = math.nan if math.isnan(value) else float((1 + (abs(others) >= abs(value) - 1e-12).sum()) / (1 + resamples))
    over = None
    if all(len(values) > 1 for values in first):
        again = np.stack(
            [np.asarray(one)[draws.integers(len(one), size=(resamples, len(one)))].mean(1) for one in first], axis=1
        )
        over = _interval(_coefficients(again, np.broadcast_to(given, again.shape), kind))
    return Correlation(value, _interval(among), p, over)


def _coefficients(first: NDArray[Any], second: NDArray[Any], kind: Coefficient) -> NDArray[np.float64]:
    """Of each row of [draws, things]; nan where one does not vary."""
    if kind == "spearman":
        from scipy.stats import rankdata

        one, other = (rankdata(values, axis=1) for values in (first, second))
        one, other = (values - values.mean(1, keepdims=True) for values in (one, other))
    else:
        rows, columns = np.triu_indices(first.shape[1], 1)
        one, other = (np.sign(values[:, rows] - values[:, columns]) for values in (first, second))
    scale = np.sqrt((one**2).sum(1) * (other**2).sum(1))
    return np.divide((one * other).sum(1), scale, out=np.full(len(scale), np.nan), where=scale > 0)


def _interval(drawn: NDArray[Any]) -> Interval | None:
    """Of the draws that have a value; None where hardly any has."""
    known = drawn[~np.isnan(drawn)]
    return _middle(known) if len(known) > len(drawn) / 2 else None


def _middle(drawn: NDArray[Any]) -> Interval:
    low, high = np.quantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)
