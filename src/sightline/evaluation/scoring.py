"""How answers are scored: which classes may be answered, and which answers are right, of each image.

One pass over images may be scored in several ways, as ImageNet's validation images are by their labels and by the
reassessed ones. A scoring makes of logits and sets of right answers what every metric knows: logits and a label each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Scoring:
    """One way.

    Attributes:
        data: what its rows say they are of.
        right: of each image the numbers of the right answers, none of one that is left out; None: its label alone.
        classes: numbers of the classes that may be answered, rising; None for all.
        groups: name of an answer -> numbers of its classes, where answers are wider than classes: each scores the
            logarithm of the mean softmax of its classes. Every label is in one, and all images are scored.
        metrics: names of those that are measured; none for all.
    """

    data: str
    right: Sequence[Sequence[int]] | None = None
    classes: Sequence[int] | None = None
    groups: Mapping[str, Sequence[int]] | None = None
    metrics: Sequence[str] = ()

    def apply(self, logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which images are scored, their logits, and of each the right answer that scores highest: an answer is right
        if it is any of them, and among five if any is; so is a likelihood that of the likeliest.

        Args:
            logits: float32 [images, classes]; labels: int64 [images].

        Returns:
            int64 [scored], float32 [scored, classes that may be answered], and int64 [scored], numbers among those.
        """
        if self.groups is not None:
            return np.arange(len(labels)), *_of_groups(logits, labels, list(self.groups.values()))
        chosen = np.arange(logits.shape[1]) if self.classes is None else np.asarray(self.classes, np.int64)
        place = np.full(logits.shape[1], -1, np.int64)
        place[chosen] = np.arange(len(chosen))
        if self.right is None:
            kept, right = np.arange(len(labels)), labels
        else:
            kept = np.array([number for number, one in enumerate(self.right) if len(one)], np.int64)
            # Of equal scores the first class is the better.
            best = (max(sorted(self.right[number]), key=lambda one, row=logits[number]: row[one]) for number in kept)
            right = np.fromiter(best, np.int64, len(kept))
        shown = logits[kept] if self.classes is None else logits[np.ix_(kept, chosen)]
        return kept, shown, place[right]

    def at(self, indices: Sequence[int]) -> Scoring:
        """The same of images of a split, in this order, where `right` was by their indices."""
        return self if self.right is None else replace(self, right=[self.right[one] for one in indices])

    def renumbered(self, numbers: Sequence[int]) -> Scoring:
        """The same for a model that numbers the classes otherwise: `numbers` has its number of each class."""
        right = None if self.right is None else [[numbers[one] for one in some] for some in self.right]
        classes = None if self.classes is None else sorted(numbers[one] for one in self.classes)
        groups = self.groups and {name: [numbers[one] for one in some] for name, some in self.groups.items()}
        return replace(self, right=right, classes=classes, groups=groups)

    def record(self) -> dict[str, Any]:
        """Its fields as JSON has them."""
        right = None if self.right is None else [sorted(map(int, one)) for one in self.right]
        classes = None if self.classes is None else list(map(int, self.classes))
        wide = {"groups": dict(self.groups), "metrics": list(self.metrics)} if self.groups else {}
        return {"data": self.data, "right": right, "classes": classes, **wide}


def _of_groups(logits: np.ndarray, labels: np.ndarray, groups: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The logarithm of the mean softmax of each group, float32 [images, groups], and the group of each label."""
    place, exact = np.full(logits.shape[1], -1, np.int64), logits.astype(np.float64)
    for number, members in enumerate(groups):
        place[list(members)] = number
    sums = [np.logaddexp.reduce(exact[:, list(some)], axis=1) - np.log(len(some)) for some in groups]
    means = np.stack(sums, axis=1) - np.logaddexp.reduce(exact, axis=1, keepdims=True)
    return means.astype(np.float32), place[labels]
