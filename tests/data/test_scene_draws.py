"""What is drawn: the ranges, the balance, the streams, and what the relation of a pair may not be read from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pytest

from sightline.data.scenes.description import Scene
from sightline.data.scenes.draw import SPLITS, draw
from sightline.data.scenes.outlines import glyph_set, placed_points
from sightline.errors import InputError

COUNT = 10_000
EVERY_SPLIT = [(task, split) for task, splits in SPLITS.items() for split in splits]


@lru_cache(maxsize=8)
def scenes(task: str, split: str = "train", seed: int = 0, count: int = COUNT) -> tuple[Scene, ...]:
    return tuple(draw(task, split, index, seed) for index in range(count))


@pytest.mark.slow
def test_held_out_fonts_are_in_no_other_split() -> None:
    glyphs = glyph_set()
    assert len(glyphs.train_faces) == 16
    assert len(glyphs.held_out_faces) == 5
    assert not set(glyphs.train_faces) & set(glyphs.held_out_faces)
    for split in ("train", "minival", "test"):
        faces = [scene.objects[0].outline[0] for scene in scenes("glyphs", split)]
        counts = np.array([faces.count(face) for face in glyphs.train_faces])
        assert counts.sum() == COUNT
        assert ((counts - COUNT / 16) ** 2 / (COUNT / 16)).sum() < 44.3  # 15 degrees of freedom, p = 1e-4
    assert {scene.objects[0].outline[0] for scene in scenes("glyphs", "heldout_fonts")} == set(glyphs.held_out_faces)


def numbers(scene: Scene) -> tuple[float, ...]:
    return (scene.size, *scene.position, *scene.background.colour, scene.objects[0].rotation)


def test_no_two_scenes_of_any_split_or_seed_share_a_number() -> None:
    drawn: list[float] = []
    for task, split in EVERY_SPLIT:
        for seed in (0, 1) if split == "train" else (0,):
            drawn += [number for index in range(500) for number in numbers(draw(task, split, index, seed))]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(
    "asked",
    [("glyph", "train", 0), ("pairs", "heldout_fonts", 0), ("glyphs", "train", 0, -1), ("glyphs", "train", 2**64)],
)
def test_unknown_names_and_numbers_are_refused(asked: tuple) -> None:
    with pytest.raises(InputError):
        draw(*asked)


def pair_boxes(count: int = 3000) -> Iterator[tuple[Scene, np.ndarray]]:
    for scene in scenes("pairs")[:count]:
        yield scene, placed_points(scene, (100, 100))[1]


def test_pairs_do_not_overlap_and_their_relation_is_plain() -> None:
    for scene, boxes in pair_boxes():
        first, second = boxes
        y, x = (second[:2] + second[2:] - first[:2] - first[2:]) / 2
        along, across = (x, y) if scene.label % 4 < 2 else (y, x)
        assert abs(across) <= 0.5 * abs(along) + 1e-9
        expected = 1 if scene.label % 2 == 0 else -1
        assert np.sign(along) == expected
        axis = 1 if scene.label % 4 < 2 else 0
        before, after = (first, second) if along > 0 else (second, first)
        assert after[axis] - before[axis + 2] >= 0.1 * scene.size * 100 - 1e-9
        sides = boxes[:, 2:].max(axis=0) - boxes[:, :2].min(axis=0)
        assert sides.max() == pytest.approx(scene.size * 100)
        assert sides[axis] == pytest.approx(scene.size * 100)
