"""Thresholds, pairs and points of a cascade, on made-up scores and beside loops over images."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sightline.errors import InputError
from sightline.evaluation.cascade import StageScores, best_pair, fraction_within_budget, measure_cascade, threshold_for
from sightline.evaluation.predict import BatchOutputs
from sightline.models import ViTConfig
from sightline.results.rows import wilson_interval
from sightline.tasks.base import make_task
from tests.batches import labelled


def points_of(*arguments):
    """Of each point its fields, and what was answered in the end."""
    found = measure_cascade(*arguments)
    return [SimpleNamespace(**said, scored=one) for one, said in found]


def scored(budget: int, top1: float, *, images: int = 1000, known: bool = True, seed: int = 0) -> StageScores:
    """Made-up scores: the same images are hard at every budget, and where `known` the score says which."""
    hardness = np.random.default_rng(seed).permutation(images) / images
    own = np.random.default_rng((seed, budget))
    # The easier the surer, at each budget in its own way.
    confidence = (1 - hardness) ** (budget / 16) if known else own.uniform(0, 1, images)
    tokens = own.integers(budget - 3, budget + 1, images)
    return StageScores(budget, hardness < top1, confidence, tokens, tokens * 1e-3, 1e-3)


SINGLES = [scored(16, 0.5), scored(36, 0.6), scored(64, 0.9)]


def test_scores_of_what_was_said():
    """In the order that is asked for, without what cannot be read; a batch's time is shared by its images."""
    task = make_task("classification", ViTConfig(num_classes=3, score_link="sigmoid"))
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    first = dataclasses.replace(labelled([1, 2]), indices=torch.tensor([8, 3]))
    second = dataclasses.replace(labelled([2]), indices=torch.tensor([5]))
    given = [BatchOutputs(first, logits[:2], 9, 4.0, 1.0), BatchOutputs(second, logits[2:], 6, 1.0, 0.5)]
    found = StageScores.of(9, task, given, [3, 4, 5, 8])
    assert found.budget == 9
    assert found.right.tolist() == [False, True, True]
    assert found.confidence == pytest.approx([1 / (1 + math.exp(-score)) for score in (3, 4, 2)])
    assert (found.tokens.tolist(), found.seconds.tolist(), found.reading) == ([9, 6, 9], [2, 1, 2], 0.5)
    softmax = make_task("classification", ViTConfig(num_classes=3, score_link="softmax"))
    assert StageScores.of(9, softmax, given, [8]).confidence == pytest.approx(
        [math.exp(2) / (1 + math.exp(2) + math.e)]
    )
    assert len(StageScores.of(9, task, [], [3, 4]).right) == 0


def test_thresholds():
    scores = np.array([0.9, 0.1, 0.5, 0.3])
    assert threshold_for(scores, 0) == 0
    assert threshold_for(scores, 0.5) == pytest.approx(0.4)
    assert threshold_for(scores, 0.26) == pytest.approx(0.2)
    assert (scores < threshold_for(scores, 1)).all()
    assert (np.ones(3) < threshold_for(np.ones(3), 1)).all()
    # Those that tie are not seen again: no more than the fraction.
    assert (np.array([0.1, 0.5, 0.5, 0.5]) < threshold_for(np.array([0.1, 0.5, 0.5, 0.5]), 0.5)).sum() == 1


@pytest.mark.parametrize("budget", [16, 20, 47.3, 78, 1000])
def test_the_largest_alpha_within_a_budget(budget):
    first, second = SINGLES[0], SINGLES[2]
    alpha = fraction_within_budget(first, second, budget)

    def spent(count: int) -> float:
        again = np.argsort(first.confidence)[:count]
        return (first.tokens.sum() + second.tokens[again].sum()) / len(first.tokens)

    count = round(alpha * len(first.tokens))
    assert spent(count) <= budget
    assert count == len(first.tokens) or spent(count + 1) > budget


def test_a_budget_below_the_first_look_is_refused():
    with pytest.raises(InputError, match="budget 5"):
        fraction_within_budget(SINGLES[0], SINGLES[1], 5)


def test_points_are_those_of_a_loop_over_images():
    first, second = SINGLES[0], SINGLES[2]
    thresholds = [(0.1, 0.13), (0.3, 0.29), (0.6, 0.61)]
    for point, (alpha, threshold) in zip(points_of(SINGLES, (16, 64), thresholds), thresholds, strict=True):
        right = tokens = seconds = again = 0.0
        for image in range(len(first.right)):
            right_one, tokens_one, seconds_one = first.right[image], first.tokens[image], first.seconds[image]
            if first.confidence[image] < threshold:
                again += 1
                right_one = second.right[image]
                tokens_one += second.tokens[image]
                seconds_one += second.seconds[image]
            right, tokens, seconds = right + right_one, tokens + tokens_one, seconds + seconds_one
        images = len(first.right)
        assert (point.alpha, point.threshold, point.fraction) == (alpha, threshold, again / images)
        assert (point.scored.top1, point.scored.tokens.mean()) == (
            pytest.approx(right / images),
            pytest.approx(tokens / images),
        )
        assert point.scored.seconds.mean() == pytest.approx(seconds / images)
        assert point.scored.reading == pytest.approx(1e-3 * (1 + again / images))


def test_none_and_all_seen_again():
    none, every = points_of(SINGLES, (16, 64), [(0, 0.0), (1, threshold_for(SINGLES[0].confidence, 1))])
    assert (none.scored.top1, none.fraction, none.scored.ece) == (0.5, 0, SINGLES[0].ece)
    assert (every.scored.top1, every.fraction, every.scored.ece) == (0.9, 1, SINGLES[2].ece)
    assert every.scored.tokens.mean() == pytest.approx(SINGLES[0].tokens.mean() + SINGLES[2].tokens.mean())
    # No single budget has as many tokens: nothing to compare with.
    assert every.ahead is None
    assert every.ahead_low is None


def test_a_cascade_that_changes_nothing_is_level_without_doubt():
    """Paired: the doubt of the images themselves is on both sides and drops out."""
    (point,) = points_of(SINGLES, (16, 64), [(0, 0.0)])
    assert (point.ahead, point.ahead_low, point.ahead_high) == (0, 0, 0)
    low, high = wilson_interval(point.scored.top1, len(point.scored.right))
    assert high - low > 0.05


def test_ahead_of_the_line_between_single_budgets():
    """Half of the images again, those that only more tokens get right: ahead of any lot between the budgets."""
    (point,) = points_of(SINGLES, (16, 64), [(0.5, 0.5005)])
    tokens = [one.tokens.mean() for one in SINGLES]
    base = np.interp(point.scored.tokens.mean(), tokens, [0.5, 0.6, 0.9])
    assert point.ahead == pytest.approx(0.9 - base)
    low, high = (point.ahead_low, point.ahead_high)
    assert 0 < low < 0.9 - base < high


def test_more_tokens_that_do_harm_are_no_excuse():
    """The line of single budgets stays level where the last is worse."""
    singles = [scored(16, 0.5), scored(36, 0.9), scored(64, 0.6)]
    (point,) = points_of(singles, (16, 36), [(0.8, 0.8005)])
    assert (point.scored.top1, point.ahead) == (0.9, 0)


def test_the_best_pair():
    """Scores that say nothing at 16 tokens and everything at 36: the first look is 36."""
    singles = [scored(16, 0.5, known=False), scored(36, 0.8), scored(64, 1.0)]
    assert best_pair(singles, (0.1, 0.2)) == (36, 64)
    assert best_pair(list(reversed(singles)), (0.1, 0.2)) == (36, 64)
    assert best_pair(SINGLES, (0.3, 0.5)) == (16, 64)


def test_the_best_pair_for_a_budget():
    # 35 tokens: nothing but 16 fits before a second look; all of it goes to 64 or is half wasted on 36.
    assert best_pair(SINGLES, (0.1,), 34) == (16, 64)
    # The 64 alone has no second look; of the others 36 and 64 is right more often than 16 and 64.
    assert best_pair([scored(16, 0.1), scored(36, 0.6), scored(64, 0.9)], (0.1,), 58) == (36, 64)
    with pytest.raises(InputError, match="expected two"):
        best_pair(SINGLES, (0.1,), 3)
