"""A linear probe: multinomial logistic regression on frozen features, held back by l2, by L-BFGS (as CLIP's).

Features are brought to mean 0 and deviation 1 by those of `train`. What is least is the mean cross entropy and
l2 / 2 times the squares of all weights, none of the bias: scikit-learn's `LogisticRegression(C=1 / (l2 * images))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sightline.evaluation.features import Features, FrozenFeatureMeasure, accuracy
from sightline.evaluation.measures.few_shot import whitening
from sightline.results.rows import MetricValue

STRENGTHS = tuple(10.0**power for power in range(-6, 2))
# Far beyond what changes an answer; strengths that are weak where classes lie apart end at the first.
_MOST_STEPS = 1000
_GRADIENT, _FALL = 1e-7, 1e-13
# Images whose scores are in memory at once: of a thousand classes 64 MB.
_TOGETHER = 2**13


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
    `linear_probe_train_images`."""

    name: ClassVar[str] = "linear_probe"

    def fit(self, train: Features, held_out: Features) -> dict[str, Any]:
        return fitted(train, STRENGTHS, held_out)

    def score(self, learned: dict[str, Any], images: Features) -> list[MetricValue]:
        x = (images.values - learned["mean"]) / learned["deviation"]
        right = learned["classes"][_named(x, learned["weights"])] == images.labels
        return [
            accuracy("linear_probe_top1", right),
            MetricValue("linear_probe_l2", learned["strength"], "", len(images)),
            MetricValue("linear_probe_train_images", learned["images"], "", len(images)),
        ]
