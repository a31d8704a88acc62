"""Few-shot: scikit-learn's ridge on the same matrix at every strength, and what is chosen and left out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge as Reference

from sightline.evaluation.features import Features
from sightline.evaluation.measures.few_shot import (
    SHOTS,
    STRENGTHS,
    FewShot,
    Ridge,
    first_of_each,
    fitted,
    whitened,
    whitening,
)


def drawn(images: int, dim: int, classes: int, seed: int = 0, apart: float = 1.0) -> Features:
    """Features around a centre for each class, in mixed order, at deviations of many sizes."""
    draws = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), draws.integers(0, classes, images)])[:images]
    centres = np.random.default_rng(99).standard_normal((classes, dim))
    values = apart * centres[labels] + draws.standard_normal((images, dim))
    return Features((values * np.logspace(-2, 2, dim) + 3).astype(np.float32), labels)


def written_out(images: Features) -> np.ndarray:
    """The matrix by its definition, column by column."""
    columns = [
        (column - column.mean()) / (np.sqrt(((column - column.mean()) ** 2).mean()) + 1e-5)
        for column in images.values.astype(np.float64).T
    ]
    return np.stack([*columns, np.full(len(images), 100.0)], axis=1)


# Fewer images than values is solved by the images; 12 values and the bias are 13.
@pytest.mark.parametrize(("images", "dim"), [(60, 12), (14, 12), (13, 12), (12, 12), (9, 40), (200, 3)])
def test_every_strength_is_scikit_learns_ridge_on_the_same_matrix(images, dim):
    learned, others = drawn(images, dim, 4), drawn(31, dim, 4, seed=1)
    mean, deviation = whitening(learned.values)
    x, fresh = (whitened(one.values, mean, deviation) for one in (learned, others))
    np.testing.assert_allclose(x, written_out(learned), rtol=1e-12, atol=1e-12)
    y = np.where(np.eye(4)[learned.labels] > 0, 1.0, -1.0)
    wanted = np.where(np.eye(4)[others.labels] > 0, 1.0, -1.0)
    ridge = Ridge.of(x, y)
    for strength, error in zip(STRENGTHS, ridge.errors(fresh, wanted, STRENGTHS), strict=True):
        expected = Reference(alpha=strength, fit_intercept=False, solver="svd").fit(x, y)
        np.testing.assert_allclose(ridge.weights(strength), expected.coef_.T, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(fresh @ ridge.weights(strength), expected.predict(fresh), rtol=1e-6, atol=1e-6)
        assert error == pytest.approx(((expected.predict(fresh) - wanted) ** 2).mean(), rel=1e-6)


def test_a_feature_that_does_not_vary_and_two_that_are_alike_decide_nothing_at_the_weakest_strength():
    learned, others = drawn(40, 6, 3), drawn(20, 6, 3, seed=1)
    values = np.concatenate([learned.values, learned.values[:, :1], np.full((40, 1), 5, np.float32)], axis=1)
    fresh = np.concatenate([others.values, others.values[:, :1], np.full((20, 1), 5.1, np.float32)], axis=1)
    mean, deviation = whitening(values)
    ridge = Ridge.of(whitened(values, mean, deviation), np.where(np.eye(3)[learned.labels] > 0, 1.0, -1.0))
    weights = ridge.weights(STRENGTHS[0])
    np.testing.assert_allclose(weights[7], 0, atol=1e-12)
    np.testing.assert_allclose(weights[0], weights[6], rtol=1e-6, atol=1e-9)
    assert np.abs(whitened(fresh, mean, deviation) @ weights).max() < 100


def test_the_strength_is_that_of_the_least_squared_error_on_what_is_held_out():
    learned, others = drawn(30, 20, 3, apart=0.5), drawn(200, 20, 3, seed=1, apart=0.5)
    mean, deviation = whitening(learned.values)
    x, fresh = (whitened(one.values, mean, deviation) for one in (learned, others))
    y, wanted = (np.where(np.eye(3)[one.labels] > 0, 1.0, -1.0) for one in (learned, others))
    made = [Reference(alpha=one, fit_intercept=False, solver="svd").fit(x, y) for one in STRENGTHS]
    errors = [((one.predict(fresh) - wanted) ** 2).mean() for one in made]
    best = int(np.argmin(errors))
    assert 0 < best < 39
    found = fitted(learned, STRENGTHS, others)
    assert found["strength"] == STRENGTHS[best]
    np.testing.assert_allclose(found["weights"], made[best].coef_.T, rtol=1e-6, atol=1e-8)
    # More than 500 are looked at only where more are learned from.
    many, few = drawn(900, 20, 3, seed=1, apart=0.5), drawn(700, 20, 3, seed=2, apart=0.5)
    for images, count in ((learned, 500), (few, 700)):
        expected = fitted(images, STRENGTHS, many.part(np.arange(count)))
        assert fitted(images, STRENGTHS, many)["strength"] == expected["strength"]
        shifted = Features(np.where(np.arange(900)[:, None] < count, many.values, 1e6), many.labels)
        assert fitted(images, STRENGTHS, shifted)["strength"] == expected["strength"]
    # One alone is taken, whatever is held out.
    assert fitted(learned, (2.0**10,), others.part(np.arange(0)))["strength"] == 2.0**10


def test_the_first_of_each_class_in_their_order_or_none_where_a_class_has_fewer():
    labels = np.array([4, 2, 4, 4, 2, 9, 9, 2])
    assert first_of_each(labels, 1).tolist() == [0, 1, 5]
    assert first_of_each(labels, 2).tolist() == [0, 1, 2, 4, 5, 6]
    assert first_of_each(labels, 3) is None


def test_rows_by_shots_with_the_strength_and_what_is_left_out():
    # Class 5 has 7 images, so that 10 and 25 are left out.
    learned, others = drawn(120, 10, 3, apart=3), drawn(50, 10, 3, seed=1, apart=3)
    keep = (learned.labels != 1) | (np.cumsum(learned.labels == 1) <= 7)
    learned = learned.part(keep)
    rows = FewShot().score(FewShot().fit(learned, others), others)
    said = {(row.metric, row.slices.get("shots")): row for row in rows}
    shown = {("few_shot_top1", 1), ("few_shot_l2", 1), ("few_shot_top1", 5), ("few_shot_l2", 5)}
    assert said.keys() == shown | {("few_shot_smallest_class", None)}
    assert said["few_shot_smallest_class", None].value == 7
    best = said["few_shot_top1", 5]
    assert (best.unit, best.count, best.better) == ("fraction", 50, "higher")
    chosen = learned.part(first_of_each(learned.labels, 5))
    mean, deviation = whitening(chosen.values)
    x, fresh = (whitened(one.values, mean, deviation) for one in (chosen, others))
    reference = Reference(alpha=said["few_shot_l2", 5].value, fit_intercept=False).fit(
        x, np.where(np.eye(3)[chosen.labels] > 0, 1.0, -1.0)
    )
    assert best.value == (reference.predict(fresh).argmax(1) == others.labels).mean()


def test_enough_of_each_class_leaves_nothing_out():
    learned, others = drawn(300, 6, 2), drawn(9, 6, 2, seed=1)
    rows = FewShot().score(FewShot().fit(learned, others), others)
    assert [row.slices["shots"] for row in rows if row.metric == "few_shot_top1"] == list(SHOTS)
    assert {row.metric for row in rows} == {"few_shot_top1", "few_shot_l2"}


def test_one_class_and_one_image_and_a_class_that_was_not_learned():
    learned = Features(np.ones((30, 4), np.float32), np.full(30, 3))
    images = Features(np.array([[1, 2, 3, 4], [0, 0, 0, 0]], np.float32), np.array([3, 8]))
    rows = FewShot().score(FewShot().fit(learned, learned), images)
    assert [row.value for row in rows if row.metric == "few_shot_top1"] == [0.5] * 4
    rows = FewShot().score(FewShot().fit(learned, learned), images.part(np.array([0])))
    assert [(row.value, row.count) for row in rows if row.metric == "few_shot_top1"] == [(1.0, 1)] * 4
