"""What a run said of each image of a split, counted: by class, and by what was taken for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sightline.reports.content import Answers
from sightline.results.predictions import Prediction
from sightline.results.rows import FRACTION, MetricValue

# Beyond so many classes a picture of all pairs cannot be read.
MOST_IN_PICTURE = 40
_MOST_LISTED = 12


def share(count: int, total: int) -> MetricValue:
    """So many of all images, named rightly."""
    return MetricValue("top1", count / total, FRACTION, total)


def by_class(said: Answers) -> list[tuple[str, MetricValue, str]]:
    """Every class, the share that was named rightly, and what the others were taken for most; the lowest first."""
    counts: dict[str, Counter[str]] = {}
    for one in said.answers:
        counts.setdefault(one.label, Counter())[one.predicted] += 1
    scores = []
    for name, named in counts.items():
        total = sum(named.values())
        wrong = [(count, other) for other, count in named.items() if other != name]
        most = max((count for count, _ in wrong), default=0)
        others = sorted(other for count, other in wrong if count == most)
        more = f" and {len(others) - 2} more" if len(others) > 2 else ""
        words = f"{', '.join(others[:2])}{more} ({most})" if others else ""
        scores.append((name, share(named[name], total), words))
    return sorted(scores, key=lambda score: (score[1].value, score[0]))


def confusion(said: Answers) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the classes, and int64 [classes, classes]: images of the row's class that were named as the column's."""
    names = sorted({name for one in said.answers for name in (one.label, one.predicted)})
    place = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for one in said.answers:
        counts[place[one.label], place[one.predicted]] += 1
    return names, counts


def top_confusions(said: Answers) -> list[tuple[str, str, int, int]]:
    """(true class, named as, images, images of the true class), the most frequent first; at most a dozen."""
    pairs = Counter((one.label, one.predicted) for one in said.answers if not one.correct)
    totals = Counter(one.label for one in said.answers)
    ranked = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(label, predicted, count, totals[label]) for (label, predicted), count in ranked[:_MOST_LISTED]]


def worst(answers: Sequence[Prediction], count: int) -> list[Prediction]:
    """The mistakes that the model was surest of."""
    wrong = [one for one in answers if not one.correct]
    return sorted(wrong, key=lambda one: (-one.score, one.index))[:count]
