"""The linear probe: the loss of scikit-learn's logistic regression at its optimum, and what is chosen on others."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sightline.evaluation.features import Features
from sightline.evaluation.measures import linear_probe
from sightline.evaluation.measures.few_shot import whitening
from sightline.evaluation.measures.linear_probe import STRENGTHS, LinearProbe, fitted, least, loss_of


def drawn(images: int, dim: int, classes: int, seed: int, apart: float = 1.0) -> Features:
    draws = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), draws.integers(0, classes, images)])[:images]
    centres = np.random.default_rng(99).standard_normal((classes, dim))
    values = apart * centres[labels] + draws.standard_normal((images, dim))
    return Features((values * np.logspace(-1, 1, dim) - 2).astype(np.float32), 2 * labels)


def standard(train: Features, images: Features) -> np.ndarray:
    mean, deviation = whitening(train.values)
    return (images.values - mean) / deviation


@pytest.mark.parametrize("together", [4, 2**13])
def test_the_gradient_is_that_of_finite_differences(together, monkeypatch):
    monkeypatch.setattr(linear_probe, "_TOGETHER", together)
    draws = np.random.default_rng(0)
    weights, x, targets = draws.standard_normal((5, 3)), draws.standard_normal((11, 4)), draws.integers(0, 3, 11)
    loss, gradient = loss_of(weights, x, targets, 0.3)
    for place in np.ndindex(*weights.shape):
        moved = [weights.copy() for _ in range(2)]
        moved[0][place] += 1e-6
        moved[1][place] -= 1e-6
        slope = (loss_of(moved[0], x, targets, 0.3)[0] - loss_of(moved[1], x, targets, 0.3)[0]) / 2e-6
        assert gradient[place] == pytest.approx(slope, abs=1e-8)
    monkeypatch.undo()
    assert loss == pytest.approx(loss_of(weights, x, targets, 0.3)[0], rel=1e-12)


@pytest.mark.parametrize("apart", [0.5, 4.0], ids=["mixed", "apart"])
@pytest.mark.parametrize("strength", [10.0, 0.1, 1e-3, 1e-6])
def test_the_loss_at_the_optimum_is_scikit_learns(strength, apart):
    train = drawn(80, 6, 3, 0, apart)
    x, targets = standard(train, train), train.labels // 2
    found = least(x, targets, 3, strength)
    other = LogisticRegression(C=1 / (strength * len(x)), tol=1e-10, max_iter=20_000).fit(x, targets)
    reference = np.concatenate([other.coef_.T, other.intercept_[None]])
    ours, theirs = (loss_of(one, x, targets, strength)[0] for one in (found, reference))
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
    # By its definition, term by term.
    logits = x @ found[:-1] + found[-1]
    cross = np.mean([np.log(np.exp(row - row[own]).sum()) for row, own in zip(logits, targets, strict=True)])
    assert ours == pytest.approx(cross + strength / 2 * (found[:-1] ** 2).sum(), rel=1e-12)


def test_the_strength_is_the_best_on_what_is_held_out_and_of_equals_the_strongest():
    train, others = drawn(40, 30, 3, 0, 0.5), drawn(300, 30, 3, 1, 0.5)
    found = fitted(train, STRENGTHS, others)
    x, fresh, right = standard(train, train), standard(train, others), []
    for strength in STRENGTHS:
        weights = least(x, train.labels // 2, 3, strength)
        right.append(int((2 * (fresh @ weights[:-1] + weights[-1]).argmax(1) == others.labels).sum()))
    assert len(set(right)) > 1
    assert found["strength"] == max(one for one, count in zip(STRENGTHS, right, strict=True) if count == max(right))
    again = fitted(train, STRENGTHS, others)
    assert np.array_equal(found["weights"], again["weights"])


def test_rows_one_class_one_image_and_a_class_that_was_not_learned():
    train = drawn(60, 4, 2, 0, 6.0)
    probe = LinearProbe()
    rows = {row.metric: row for row in probe.score(probe.fit(train, train), train)}
    assert rows.keys() == {"linear_probe_top1", "linear_probe_l2", "linear_probe_train_images"}
    assert rows["linear_probe_top1"].value == 1
    assert rows["linear_probe_train_images"].value == 60
    same = train.part(train.labels == 2)
    rows = probe.score(probe.fit(same, same), train)
    assert rows[0].value == (train.labels == 2).mean()
    one = same.part(np.array([0]))
    rows = probe.score(probe.fit(one, one), one)
    assert (rows[0].value, rows[0].count, rows[1].value) == (1.0, 1, STRENGTHS[-1])
