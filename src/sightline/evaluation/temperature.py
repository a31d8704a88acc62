"""One temperature for all logits of a measurement, fitted on held-out images that were shown in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.distributed.ranks import Ranks
from sightline.errors import InputError
from sightline.evaluation.logits import TOGETHER, StoredLogits, read_logits
from sightline.metrics.tempered import Temperature
from sightline.tasks.base import Task
from sightline.tasks.classification import Classification

SPLIT = "minival"
MOST = 100.0
"""The highest temperature that is looked for; the lowest is 1 over it. Logits that are right of every image would have
0, and those that know nothing infinity."""
_NO_IMAGE = f"temperature: split {SPLIT} has no image to fit it on"
# What tells measurements apart but for their split, and how long they took.
_SAME = (
    "run", "encoding", "task", "data", "train_resolution", "seed", "resolution", "view", "tuned", "knob", "shrunk",
)  # fmt: skip


def check_task(task: Task) -> None:
    """Raise InputError unless a task has scores of classes, which a temperature divides."""
    if not isinstance(task, Classification):
        raise InputError(f"temperature: task {task.name} gives no scores of classes (expected task classification)")


def fit_temperature(logits: np.ndarray, labels: np.ndarray, link: str = "softmax") -> Temperature:
    """The temperatures with the lowest negative log-likelihood of images of `minival` (Guo et al. 2017, section 4.2).

    `softmax` minimises -log softmax(logits / T) of the true class, whatever trained the model, as `nll` has it. Where
    `link` is sigmoid, `sigmoid` minimises the binary cross entropy of sigmoid(logits / T), summed over classes: the
    loss by which such a model was trained. Both are convex in 1 / T, whose derivative is brought to 0 in float64
    (Brent's method on its logarithm); without a minimum between 1 / `MOST` and `MOST` it is the better of the two, and
    1 where no temperature changes anything.

    Args:
        logits: float32 [images, classes]; labels: int64 [images].
        link: of the model's scores.

    Raises:
        InputError: there is no image.
    """
    if not len(labels):
        raise InputError(_NO_IMAGE)
    parts = [
        (torch.from_numpy(logits[start : start + TOGETHER]), torch.from_numpy(labels[start : start + TOGETHER]))
        for start in range(0, len(labels), TOGETHER)
    ]

    def fitted(slope: Callable[[Tensor, Tensor, float], Tensor]) -> float:
        def mean(beta: float) -> float:
            each = (slope(some.double(), true, beta).numpy() for some, true in parts)
            return float(np.concatenate(list(each)).mean())

        return _where_zero(mean)

    sigmoid = fitted(_slope_of_sigmoids) if link == "sigmoid" else None
    return Temperature(SPLIT, len(labels), fitted(_slope_of_softmax), sigmoid)


def _slope_of_softmax(logits: Tensor, labels: Tensor, beta: float) -> Tensor:
    """By how much -log softmax(beta x logits) of the true class grows with beta: float64 [images]."""
    # From the true class on: what is small is not lost in what is large.
    apart = logits - logits.gather(1, labels[:, None])
    return ((beta * apart).softmax(-1) * apart).sum(-1)


def _slope_of_sigmoids(logits: Tensor, labels: Tensor, beta: float) -> Tensor:
    """The same of the binary cross entropies of sigmoid(beta x logits), summed over classes."""
    own = logits.gather(1, labels[:, None])
    each = (beta * logits).sigmoid() * logits
    # Of the true class it is -z sigmoid(-beta z).
    each = each.scatter(1, labels[:, None], -own * (-beta * own).sigmoid())
    return each.sum(-1)


def _where_zero(slope: Callable[[float], float]) -> float:
    """1 over the beta at which a rising function is 0."""
    # Slow to load, and only this needs it.
    from scipy.optimize import brentq

    rises, falls = slope(1 / MOST) >= 0, slope(MOST) <= 0
    if rises or falls:
        return 1.0 if rises and falls else MOST if rises else 1 / MOST
    ends = np.log(1 / MOST), np.log(MOST)
    found: Any = brentq(lambda log: slope(float(np.exp(log))), *ends, xtol=1e-11)
    return float(np.exp(-found))


def fit_temperature_on_ranks(scores: Sequence[Mapping[str, Any]] | None, task: Task, ranks: Ranks) -> Temperature:
    """The temperature that the first rank fits on what it counted of minival, on each rank; each must call it.

    Args:
        scores: of each batch, as `SplitResult.scores`; of other ranks None.

    Raises:
        InputError: there is no image.
    """
    told: list[Any] = []
    if scores is not None:
        if not scores:
            raise InputError(_NO_IMAGE)
        logits, labels = (np.concatenate([part[name] for part in scores]) for name in ("logits", "labels"))
        told = list(astuple(fit_temperature(logits, labels, task.config.score_link)))
    return Temperature(*ranks.broadcast(told))


def temperatures_from_logits(files: Iterable[Path]) -> Fitted:
    """The temperature of each measurement of `minival` among files of logits.

    Raises:
        InputError: as `read_logits`.
    """
    found = {}
    for file in files:
        if read_logits(file, header=True).measured["split"] == SPLIT:
            stored = read_logits(file)
            found[_key(stored)] = fit_temperature(stored.logits, stored.labels, stored.task["score_link"])
    return Fitted(found)


@dataclass(frozen=True)
class Fitted:
    """Temperatures by what they are of."""

    found: Mapping[tuple[Any, ...], Temperature]

    def of(self, stored: StoredLogits) -> Temperature | None:
        """That of another split, shown as its images were to the same weights; None where there is none, and of
        `minival` itself, which it would flatter."""
        return None if stored.measured["split"] == SPLIT else self.found.get(_key(stored))


def _key(stored: StoredLogits) -> tuple[Any, ...]:
    measured = stored.measured
    chosen = tuple((one["what"], one["value"]) for one in measured.get("tuning", ()))
    # The first part of a work tells the weights (`WorkFolder.identity`); files say nothing of a preparation that is
    # the model's own.
    prepared = measured.get("preparation") or ""
    return stored.work.partition("-")[0], chosen, prepared, *(measured.get(name) for name in _SAME)
