"""A linear probe: multinomial logistic regression on frozen features, held back by l2, by L-BFGS (as CLIP's).

Features are brought to mean 0 and deviation 1 by those of `train`. What is least is the mean cross entropy and
l2 / 2 times the squares of all weights, none of the bias: scikit-learn's `LogisticRegression(C=1 / (l2 * images))`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from sightline.data.source import Source
from sightline.evaluation.features import Features, FrozenFeatureMeasure, accuracy
from sightline.evaluation.measures.few_shot import whitening
from sightline.results.attributes import ATTRIBUTE, BY, GAP, MEAN, TOP1, VALUE, WORST, PairedValue
from sightline.results.rows import FRACTION, Z95, MetricValue, wilson_interval

STRENGTHS = tuple(10.0**power for power in range(-6, 2))
# Far beyond what changes an answer; strengths that are weak where classes lie apart end at the first.
_MOST_STEPS = 1000
_GRADIENT, _FALL = 1e-7, 1e-13
# Images whose scores are in memory at once: of a thousand classes 64 MB.
_TOGETHER = 2**13
# Of a table with more attributes, as CelebA's 40, each is cut by those alone that are asked for.
_MOST_CUT = 8


def loss_of(weights: np.ndarray, x: np.ndarray, targets: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
    """The loss and its gradient.

    Args:
        weights: float64 [dim + 1, classes], the bias last; x: float64 [images, dim]; targets: [images], of the classes.
    """
    loss, gradient = strength / 2 * float(np.square(weights[:-1]).sum()), np.zeros_like(weights)
    gradient[:-1] = strength * weights[:-1]
    for start in range(0, len(x), _TOGETHER):
        here, own = x[start : start + _TOGETHER], targets[start : start + _TOGETHER]
        logits = here @ weights[:-1] + weights[-1]
        logits -= logits.max(axis=1, keepdims=True)
        rows = np.arange(len(here))
        right = logits[rows, own]
        np.exp(logits, out=logits)
        total = logits.sum(axis=1)
        loss += float((np.log(total) - right).sum()) / len(x)
        logits /= total[:, None]
        logits[rows, own] -= 1
        logits /= len(x)
        gradient[:-1] += here.T @ logits
        gradient[-1] += logits.sum(axis=0)
    return loss, gradient


def least(x: np.ndarray, targets: np.ndarray, classes: int, strength: float, start: np.ndarray | None = None) -> Any:
    """The weights [dim + 1, classes] of the least loss (L-BFGS, float64, no chance in it).

    Args:
        start: weights to begin with; zeros unless given.
    """
    from scipy.optimize import minimize

    shape = x.shape[1] + 1, classes

    def asked(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = loss_of(flat.reshape(shape), x, targets, strength)
        return loss, gradient.reshape(-1)

    options = {"maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS, "gtol": _GRADIENT, "ftol": _FALL, "maxcor": 20}
    begin = np.zeros(shape) if start is None else start
    return minimize(asked, begin.reshape(-1), jac=True, method="L-BFGS-B", options=options).x.reshape(shape)


def fitted(train: Features, strengths: Sequence[float], held_out: Features) -> dict[str, Any]:
    """The probe at the strength with the most right answers on images that are held out; of equals the strongest.

    Args:
        strengths: rising.

    Returns:
        `classes` (int64, those of the images), `mean`, `deviation`, `weights` and `strength`.
    """
    classes, targets = np.unique(train.labels, return_inverse=True)
    mean, deviation = whitening(train.values)
    x, others = ((one.values - mean) / deviation for one in (train, held_out))
    found: list[np.ndarray] = []
    # From the strongest on, each from where the one before ended.
    for strength in reversed(strengths):
        found.insert(0, least(x, targets, len(classes), strength, found[0] if found else None))
    right = [int((classes[_named(others, one)] == held_out.labels).sum()) for one in found]
    best = max(range(len(right)), key=lambda number: (right[number], number))
    return {
        "classes": classes, "mean": mean, "deviation": deviation, "weights": found[best],
        "strength": strengths[best], "images": len(train),
    }  # fmt: skip


def _named(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The place of the class with the highest score, int64 [images]."""
    return (x @ weights[:-1] + weights[-1]).argmax(axis=1)


class LinearProbe(FrozenFeatureMeasure):
    """`linear_probe_top1`, the strength `linear_probe_l2`, and from how many images it learned,
    `linear_probe_train_images`.

    Of data with attributes these are of a probe of each (slice `attribute`), the first also by the values of others
    (`by`, `value`), with the worst of these groups, `linear_probe_worst_group`, and how far it lies below the best,
    `linear_probe_gap` (Newcombe's interval, of the two groups); `linear_probe_mean` is of all attributes."""

    name: ClassVar[str] = "linear_probe"
    by_attribute: ClassVar[bool] = True

    def fit(self, train: Features, held_out: Features) -> dict[str, Any]:
        if not train.attributes:
            return fitted(train, STRENGTHS, held_out)
        each = {name: (train.of(name), held_out.of(name)) for name in train.attributes}
        return {name: fitted(one, STRENGTHS, other) for name, (one, other) in each.items() if len(one) and len(other)}

    def score(self, learned: dict[str, Any], images: Features) -> list[MetricValue]:
        if (source := images.source) is None or not images.attributes:
            return _rows(learned, images)[0]
        rows, means, added = list[MetricValue](), list[float](), np.zeros(len(images))
        for name, found in learned.items():
            there, own = images.attributes[name] >= 0, images.of(name)
            if not len(own):
                continue
            made, right = _rows(found, own)
            said = np.full(len(images), "-")
            said[there] = np.where(right, "1", "0")
            first, *others = [replace(row, slices={ATTRIBUTE: name}) for row in made]
            rows += [*(made if name == source.class_attribute else []), *others]
            rows.append(PairedValue(**vars(first), right="".join(said.tolist())))
            rows += _groups(name, right, own, source)
            means.append(first.value)
            # What an image adds to the mean over attributes.
            added[there] += (right - first.value) / len(own)
        if not means:
            return []
        mean, reach = sum(means) / len(means), Z95 * float(np.linalg.norm(added)) / len(means)
        limits = max(mean - reach, 0.0), min(mean + reach, 1.0)
        whole = MetricValue(MEAN, mean, FRACTION, len(images), reach / Z95, interval=limits, better="higher")
        return [whole, *rows]


def _rows(learned: dict[str, Any], images: Features) -> tuple[list[MetricValue], np.ndarray]:
    """Rows, and which images are named rightly, bool [images]."""
    x = (images.values - learned["mean"]) / learned["deviation"]
    right = learned["classes"][_named(x, learned["weights"])] == images.labels
    rows = [
        accuracy("linear_probe_top1", right),
        MetricValue("linear_probe_l2", learned["strength"], "", len(images)),
        MetricValue("linear_probe_train_images", learned["images"], "", len(images)),
    ]
    return rows, right


def _groups(name: str, right: np.ndarray, images: Features, source: Source) -> list[MetricValue]:
    """Rows of the groups by each other attribute: those that are asked for, or all where they are few."""
    rows = list[MetricValue]()
    for by in source.grouped_by or (source.attributes if len(source.attributes) <= _MOST_CUT else ()):
        here, numbers = {ATTRIBUTE: name, BY: by}, images.attributes[by]
        parts = [(value, right[numbers == number]) for number, value in enumerate(source.attributes[by])]
        found = [accuracy(TOP1, some, **here, **{VALUE: value}) for value, some in parts if len(some)]
        if by != name and len(found) > 1:
            low, high = (end(found, key=lambda one: one.value) for end in (min, max))
            (a, b), (c, d) = (wilson_interval(one.value, one.count) for one in (low, high))
            gap, p, q = high.value - low.value, low.value, high.value
            limits = max(gap - math.hypot(q - c, b - p), 0.0), min(gap + math.hypot(d - q, p - a), 1.0)
            count = low.count + high.count
            gaps = MetricValue(GAP, gap, FRACTION, count, slices=here, interval=limits, better="lower")
            rows += [*found, replace(low, metric=WORST), gaps]
    return rows
