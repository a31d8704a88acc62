"""Linear few-shot accuracy: ridge regression on frozen features of a few images of each class (ViT section 4.1).

As big_vision's `fewshot_lsr.py`, but for the strength: features are brought to mean 0 and deviation 1 by the images
that are learned from (each by itself, not rotated), a column of 100 stands for the bias, which is then hardly held
back, targets are -1 and 1, and one eigendecomposition, of the smaller of the two Gram matrices, serves every strength.
That code takes 2**10 for all; here the strength is chosen of 40, by the squared error on images that are held out: by
it few images tell strengths apart that give as many right answers, and no image is scored 40 times
(docs/explanation/decisions/few-shot.md). It draws images three times, here they are drawn once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from sightline.evaluation.features import Features, FrozenFeatureMeasure, accuracy
from sightline.results.rows import MetricValue

SHOTS = (1, 5, 10, 25)
STRENGTHS = tuple(2.0**power for power in range(-20, 20))
_BIAS = 100.0
_LEAST_DEVIATION = 1e-5
# So many images tell strengths apart; more are looked at where more are learned from, which takes as long.
_ENOUGH = 500


@dataclass(frozen=True, eq=False)
class Ridge:
    """Ridge regressions of all strengths: the weights of one are `left / (eigenvalues + strength) @ right`.

    With x [images, values] and targets y [images, classes] these are (x^T x + strength)^-1 x^T y, or, which is the
    same, x^T (x x^T + strength)^-1 y.

    Attributes:
        left: [values, rank]; eigenvalues: [rank]; right: [rank, classes]; all float64.
    """

    left: np.ndarray
    eigenvalues: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> Self:
        """The regression of y on x, float64; by the images where they are fewer than the values."""
        dual = len(x) < x.shape[1]
        eigenvalues, vectors = np.linalg.eigh(x @ x.T if dual else x.T @ x)
        # Where nothing varies there is nothing to learn, but rounding, which a weak strength would enlarge.
        there = eigenvalues > eigenvalues[-1] * max(x.shape) * np.finfo(np.float64).eps
        eigenvalues, vectors = eigenvalues[there], vectors[:, there]
        if dual:
            return cls(x.T @ vectors, eigenvalues, vectors.T @ y)
        return cls(vectors, eigenvalues, vectors.T @ (x.T @ y))

    def weights(self, strength: float) -> np.ndarray:
        """[values, classes]."""
        return (self.left / (self.eigenvalues + strength)) @ self.right

    def errors(self, x: np.ndarray, y: np.ndarray, strengths: Sequence[float]) -> np.ndarray:
        """The mean squared error at each strength on other images: [strengths].

        With what each eigenvector says of them, once for all strengths, each costs as little as a small matrix.

        Args:
            x: float64 [images, values]; y: float64 [images, classes].
        """
        turned = x @ self.left
        # Of |y - turned @ diag(scale) @ right|^2 the terms: linear in the scale of each eigenvector, and of each two.
        linear = ((turned.T @ y) * self.right).sum(axis=1)
        square = (turned.T @ turned) * (self.right @ self.right.T)
        scales = [1 / (self.eigenvalues + strength) for strength in strengths]
        found = [np.square(y).sum() - 2 * linear @ scale + scale @ square @ scale for scale in scales]
        return np.array(found) / y.size


def whitening(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and deviation of each feature, float64 [dim]; a feature that does not vary is hardly divided by zero."""
    values = values.astype(np.float64)
    return values.mean(axis=0), values.std(axis=0) + _LEAST_DEVIATION


def whitened(values: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Features [images, dim] by the statistics of others, and the column of the bias: float64 [images, dim + 1]."""
    found = np.full((len(values), values.shape[1] + 1), _BIAS)
    np.divide(values - mean, deviation, out=found[:, :-1])
    return found


def first_of_each(labels: np.ndarray, shots: int) -> np.ndarray | None:
    """The numbers of the first images of each class, rising; None where a class has fewer."""
    members = [np.flatnonzero(labels == label)[:shots] for label in np.unique(labels)]
    return np.sort(np.concatenate(members)) if all(len(one) == shots for one in members) else None


def fitted(images: Features, strengths: Sequence[float], held_out: Features) -> dict[str, Any]:
    """The regression of the images' classes, at the strength with the least squared error on others, of which no more
    are looked at than images are learned from, or 500.

    Returns:
        `classes` (int64, those of the images), `mean`, `deviation`, `weights` and `strength`.
    """
    classes = np.unique(images.labels)
    mean, deviation = whitening(images.values)

    def matrices(of: Features) -> tuple[np.ndarray, np.ndarray]:
        return whitened(of.values, mean, deviation), np.where(of.labels[:, None] == classes, 1.0, -1.0)

    ridge, best = Ridge.of(*matrices(images)), 0
    if len(strengths) > 1:
        seen = held_out.part(np.arange(min(len(held_out), max(len(images), _ENOUGH))))
        best = int(ridge.errors(*matrices(seen), strengths).argmin())
    strength = strengths[best]
    return {
        "classes": classes, "mean": mean, "deviation": deviation, "weights": ridge.weights(strength),
        "strength": strength,
    }  # fmt: skip


def named(learned: Mapping[str, Any], images: Features) -> np.ndarray:
    """The class that a regression gives each image, int64 [images]; of equal scores the lowest."""
    scores = whitened(images.values, learned["mean"], learned["deviation"]) @ learned["weights"]
    return learned["classes"][scores.argmax(axis=1)]


class FewShot(FrozenFeatureMeasure):
    """`few_shot_top1` and the strength `few_shot_l2` by the number of images of each class (slice `shots`), where every
    class has so many; where that leaves a number out, `few_shot_smallest_class` says how many the smallest has."""

    name: ClassVar[str] = "few_shot"

    def fit(self, train: Features, held_out: Features) -> list[dict[str, Any]]:
        found = []
        for shots in SHOTS:
            chosen = first_of_each(train.labels, shots)
            if chosen is not None:
                found.append({"shots": shots} | fitted(train.part(chosen), STRENGTHS, held_out))
            else:
                found.append({"shots": shots, "smallest": int(np.unique(train.labels, return_counts=True)[1].min())})
        return found

    def score(self, learned: list[dict[str, Any]], images: Features) -> list[MetricValue]:
        rows, count = [], len(images)
        for one in learned:
            if "smallest" in one:
                continue
            right = named(one, images) == images.labels
            strength = MetricValue("few_shot_l2", one["strength"], "", count, slices={"shots": one["shots"]})
            rows += [accuracy("few_shot_top1", right, shots=one["shots"]), strength]
        left_out = [one["smallest"] for one in learned if "smallest" in one]
        return rows + [MetricValue("few_shot_smallest_class", most, "", count) for most in left_out[:1]]
