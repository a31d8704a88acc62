"""Nearest neighbours: DINO's vote written out image by image, ties and small sets included."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sightline.evaluation.features import Features
from sightline.evaluation.measures import knn
from sightline.evaluation.measures.knn import NearestNeighbours


def cosines(train: Features, image: np.ndarray) -> list[float]:
    """Of an image and each training image, by the definition."""

    def length(vector: np.ndarray) -> float:
        return max(math.sqrt(math.fsum(float(one) ** 2 for one in vector)), 1e-12)

    dots = [math.fsum(float(a) * float(b) for a, b in zip(one, image, strict=True)) for one in train.values]
    lengths = [length(one) * length(image) for one in train.values]
    return [round(dot / one, 12) for dot, one in zip(dots, lengths, strict=True)]


def said(train: Features, similar: list[float], k: int) -> int:
    """The class that the k nearest vote for, by the definition."""
    nearest = sorted(range(len(train)), key=lambda place: (-similar[place], place))[:k]
    votes: dict[int, float] = {}
    for place in nearest:
        label = int(train.labels[place])
        votes[label] = votes.get(label, 0.0) + math.exp(similar[place] / 0.07)
    return min(votes, key=lambda label: (-votes[label], label))


def rows_of(train: Features, images: Features) -> dict[int, float]:
    rows = NearestNeighbours().score(NearestNeighbours().fit(train, train), images)
    assert [row.value for row in rows if row.metric == "knn_train_images"] == [len(train)]
    assert all(row.count == len(images) for row in rows)
    return {row.slices["k"]: row.value for row in rows if row.metric == "knn_top1"}


def written_out(train: Features, images: Features, k: int) -> float:
    pairs = zip(images.values, images.labels, strict=True)
    right = [said(train, cosines(train, image), k) == label for image, label in pairs]
    return sum(right) / len(right)


def drawn(images: int, dim: int, classes: int, seed: int) -> Features:
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, classes, images)
    centres = np.random.default_rng(99).standard_normal((classes, dim))
    return Features((0.2 * centres[labels] + draws.standard_normal((images, dim))).astype(np.float32), labels)


@pytest.mark.parametrize("together", [2**24, 260, 1], ids=["at once", "one by one", "less than one"])
def test_it_is_the_definition_at_every_k(monkeypatch, together):
    monkeypatch.setattr(knn, "_TOGETHER", together)
    train, images = drawn(250, 40, 5, 0), drawn(20, 40, 5, 1)
    found, answers = rows_of(train, images), {}
    similar = [cosines(train, image) for image in images.values]
    assert list(found) == [10, 20, 100, 200]
    for k in found:
        blocks = [*knn.neighbours(train.values, images.values, k)]
        assert len(blocks) == (1 if together > 1000 else 20)
        answers[k] = [int(one) for nearest, near in blocks for one in knn.voted(train.labels[nearest], near)]
        assert answers[k] == [said(train, one, k) for one in similar]
        assert found[k] == np.mean(np.array(answers[k]) == images.labels)
    assert len(set(map(tuple, answers.values()))) > 1


def test_of_equally_near_images_the_first_count_and_of_equal_votes_the_lowest_class():
    # Of few directions: most images are as near as others, at the edge of every k too.
    draws = np.random.default_rng(3)
    grid = np.array([(1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1)], np.float32)
    train = Features(grid[draws.integers(0, 6, 260)], draws.integers(0, 4, 260))
    images = Features(grid[np.arange(6)] * 3, np.array([0, 1, 2, 3, 0, 1]))
    for k, value in rows_of(train, images).items():
        assert value == written_out(train, images, k)
    one = Features(np.array([[1, 0], [1, 0]], np.float32), np.array([6, 2]))
    (nearest, _), = knn.neighbours(one.values, one.values[:1], 1)  # fmt: skip
    assert nearest.tolist() == [[0]]
    assert rows_of(one, Features(one.values[:1], np.array([2]))) == {2: 1.0}


def test_more_neighbours_than_images_are_all_of_them():
    train, images = drawn(15, 4, 3, 0), drawn(20, 4, 3, 1)
    found = rows_of(train, images)
    assert list(found) == [10, 15]
    assert found == {k: written_out(train, images, k) for k in found}


def test_one_class_one_image_and_features_of_zeros():
    one = Features(np.array([[2.0, 1.0]], np.float32), np.array([4]))
    assert rows_of(one, one) == {1: 1.0}
    assert rows_of(one, Features(np.array([[-2.0, 1.0], [0, 0]], np.float32), np.array([4, 5]))) == {1: 0.5}
    zeros = Features(np.zeros((3, 2), np.float32), np.array([1, 1, 0]))
    assert rows_of(zeros, zeros) == {3: pytest.approx(2 / 3)}
