"""What modelvshuman measures (Geirhos et al. 2021): accuracy by level, shape bias, error consistency with people."""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from sightline.data.batch import Batch
from sightline.metrics.base import Metric
from sightline.results.rows import FRACTION, MetricValue, binomial_stderr

CUES = "cue-conflict"
"""The set whose images show the shape of one class and the texture of another, so that none is the right answer."""


@functools.cache
def published() -> dict[str, Any]:
    """Its data sets and classes: `model_vs_human.toml`."""
    return tomllib.loads(files("sightline.metrics").joinpath("model_vs_human.toml").read_text("utf-8"))


class ModelVsHuman(Metric):
    """Of images whose slices say their `set`, and may say their `level`, their `texture`, and what people made of them
    (`people`, a sign a person: 1 right, 0 wrong, - not asked): `top1` by set and level, its mean over the levels of a
    set that count, and of these over sets but cue-conflict; `shape_bias`: of answers that name the shape or the texture
    where these differ, the share that names the shape; `error_consistency`: Cohen's kappa of what a model and a person
    name rightly, the mean over levels that count, people and sets."""

    name: ClassVar[str] = "model_vs_human"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    first: ClassVar[str | None] = "top1"

    def update(self, outputs: Tensor, batch: Batch) -> None:
        if all("set" in slices for slices in batch.slices):
            names, labels = np.array(self.task.names), batch.targets["labels"].numpy()
            said = [[str(one.get(key, "")) for key in ("set", "level", "texture", "people")] for one in batch.slices]
            self._records.append((names[outputs.numpy().argmax(1)], names[labels], np.array(said).reshape(-1, 4)))

    def rows(self) -> list[MetricValue]:
        if not sum(len(answers) for answers, *_ in self._records):
            return []
        answers, classes, said = (np.concatenate(parts) for parts in zip(*self._records, strict=True))
        means, parts, bias, alike = (list[MetricValue]() for _ in range(4))
        for name in (one for one in published()["sets"] if one in said[:, 0]):
            of, left_out = said[:, 0] == name, published()["left_out"].get(name, ())
            right, levels = (answers == classes)[of], said[of, 1]
            # By the numbers that they are or hold.
            rising = sorted(set(levels), key=lambda one: ([*map(float, re.findall(r"inf|[\d.]+", one))], one))
            counted = [levels == level for level in rising if level not in left_out]
            alike += _consistency(name, counted, right, said[of, 3])
            if name == CUES:
                one_of_two = right != (answers == said[:, 2])[of]
                bias += [_share("shape_bias", right[one_of_two])] if one_of_two.any() else []
            else:
                means += [_mean([_share("top1", right[some]) for some in counted], set=name)] if counted else []
                parts += [_share("top1", right[levels == one], set=name, level=one) for one in rising if one]
        whole = [_mean(each) for each in (means, alike) if each]
        return [*whole[: bool(means)], *means, *parts, *bias, *whole[bool(means) :], *alike]


def kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Cohen's kappa of two who name the same images rightly or not, bool [images] each; 1 where they agree in all."""
    p, q, observed = float(first.mean()), float(second.mean()), float((first == second).mean())
    expected = p * q + (1 - p) * (1 - q)
    return 1.0 if observed == 1 else (observed - expected) / (1 - expected)


def _consistency(name: str, levels: Sequence[np.ndarray], right: np.ndarray, signs: np.ndarray) -> list[MetricValue]:
    """`error_consistency` of a set: over levels of each person, and of these over people; nothing if none was asked."""
    people, means = np.array([list(one) for one in signs]).reshape(len(signs), -1).T, list[float]()
    for one in people:
        asked = [some & (one != "-") for some in levels]
        each = [kappa(right[some], one[some] == "1") for some in asked if some.any()]
        means += [sum(each) / len(each)] if each else []
    images = int(sum((some & (people != "-").any(axis=0)).sum() for some in levels))
    row = MetricValue("error_consistency", 0.0, "", images, slices={"set": name}, better="higher")
    return [replace(row, value=sum(means) / len(means))] if means else []


def _share(metric: str, right: np.ndarray, **slices: str) -> MetricValue:
    value, count, better = float(right.mean()), len(right), "higher" if metric == "top1" else ""
    return MetricValue(metric, value, FRACTION, count, binomial_stderr(value, count), slices, better=better)


def _mean(values: Sequence[MetricValue], **slices: str) -> MetricValue:
    """The mean of what was measured of different images; of shares their limits are taken together (Newcombe)."""
    value, count = sum(one.value for one in values) / len(values), sum(one.count for one in values)
    made = replace(values[0], value=value, count=count, slices=slices)
    if made.stderr is None or len(values) == 1:
        return made
    stderr = math.hypot(*(one.stderr or 0.0 for one in values)) / len(values)
    below, above = (
        math.hypot(*((one.limits() or ())[end] - one.value for one in values)) / len(values) for end in (0, 1)
    )
    return replace(made, stderr=stderr, interval=(value - below, value + above))
