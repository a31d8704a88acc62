"""Nearest neighbours of frozen features (DINO, Caron et al. 2021; Wu et al. 2018), as DINO's `eval_knn.py`.

Each of the k training images that are the most similar by cosine votes for its class with exp(similarity / 0.07).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from sightline.evaluation.features import Features, FrozenFeatureMeasure, accuracy
from sightline.results.rows import MetricValue

NEIGHBOURS = (10, 20, 100, 200)
TEMPERATURE = 0.07
# Similarities that are in memory at once: 128 MB, and three times as much to sort them out.
_TOGETHER = 2**24
# What rounding leaves of equal similarities is no order.
_DIGITS = 12


def neighbours(train: np.ndarray, images: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For some images after others, their training images and how similar those are: int64 and float64 [images, k].

    The most similar comes first, and of equals that with the lower number.

    Args:
        train, images: features [number, dim]; most: k, at most the number of training images.
    """
    unit = _units(train)
    block = max(_TOGETHER // len(unit), 1)
    for start in range(0, len(images), block):
        similar = np.round(_units(images[start : start + block]) @ unit.T, _DIGITS)
        edge = np.partition(similar, len(unit) - most, axis=1)[:, [len(unit) - most]]
        above, at = similar > edge, similar == edge
        # Of those at the edge the first ones, as many as there is room for.
        room = most - above.sum(axis=1, keepdims=True)
        nearest = np.nonzero(above | (at & (at.cumsum(axis=1) <= room)))[1].reshape(-1, most)
        values = np.take_along_axis(similar, nearest, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        yield np.take_along_axis(nearest, order, axis=1), np.take_along_axis(values, order, axis=1)


def voted(labels: np.ndarray, similarities: np.ndarray) -> np.ndarray:
    """The class with the most votes, int64 [images]; of equals the lowest.

    Args:
        labels: int64 [images, k], of the neighbours; similarities: [images, k].
    """
    classes, numbers = np.unique(labels, return_inverse=True)
    votes = np.zeros((len(labels), len(classes)))
    rows = np.arange(len(labels))
    for place, number in enumerate(numbers.reshape(labels.shape).T):
        votes[rows, number] += np.exp(similarities[:, place] / TEMPERATURE)
    return classes[votes.argmax(axis=1)]


def _units(values: np.ndarray) -> np.ndarray:
    """Vectors of length 1, float64; one of zeros stays."""
    values = values.astype(np.float64)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


class NearestNeighbours(FrozenFeatureMeasure):
    """`knn_top1` by the number of neighbours (slice `k`), at most that of the training images, which is
    `knn_train_images`."""

    name: ClassVar[str] = "knn"
    chooses: ClassVar[bool] = False

    def fit(self, train: Features, held_out: Features) -> Features:
        return train

    def score(self, learned: Features, images: Features) -> list[MetricValue]:
        counts = list(dict.fromkeys(min(k, len(learned)) for k in NEIGHBOURS))
        said: list[list[np.ndarray]] = [[] for _ in counts]
        for nearest, similar in neighbours(learned.values, images.values, counts[-1]):
            for k, found in zip(counts, said, strict=True):
                found.append(voted(learned.labels[nearest[:, :k]], similar[:, :k]))
        right = [np.concatenate(found) == images.labels for found in said]
        rows = [accuracy("knn_top1", one, k=k) for k, one in zip(counts, right, strict=True)]
        return [*rows, MetricValue("knn_train_images", len(learned), "", len(images))]
