"""What is rendered: exact coverage, the same scene at every resolution, and boxes and masks that belong to it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data.scenes.draw import SPLITS, draw
from sightline.data.scenes.outlines import glyph_set
from sightline.data.scenes.render import coverage, render

SIZES = [(20, 20), (32, 32), (24, 40), (56, 16)]


def averaged(values: np.ndarray, factor: int) -> np.ndarray:
    """Means over factor x factor of the last two axes."""
    *rest, height, width = values.shape
    cells = values.reshape(*rest, height // factor, factor, width // factor, factor)
    return cells.mean(axis=(-3, -1))


def polygon_area(points: np.ndarray, following: np.ndarray) -> float:
    end = points[following]
    return float(0.5 * np.sum(points[:, 0] * end[:, 1] - points[:, 1] * end[:, 0]))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 12), st.integers(1, 17), st.integers(1, 17))
def test_coverage_of_any_convex_polygon_against_many_samples(seed: int, corners: int, height: int, width: int) -> None:
    random = np.random.default_rng(seed)
    turns = np.sort(random.uniform(0, 2 * np.pi, corners))
    middle, reach = np.array([height, width]) / 2, np.array([height, width]) / 2 * random.uniform(0.3, 1)
    start = middle + np.stack([np.cos(turns), np.sin(turns)], axis=1) * reach
    end = np.roll(start, -1, axis=0)
    steps = 16
    y, x = (np.mgrid[: height * steps, : width * steps] + 0.5) / steps
    inside = np.ones_like(y, dtype=bool)
    for (ay, ax), (by, bx) in zip(start, end, strict=True):
        inside &= (by - ay) * (x - ax) - (bx - ax) * (y - ay) >= 0
    got = coverage(start, end, height, width)
    assert got == pytest.approx(averaged(inside.astype(float), steps), abs=0.1)
    area = polygon_area(start, np.roll(np.arange(corners), -1))
    assert got.sum() == pytest.approx(area, abs=1e-9)


@pytest.mark.parametrize("task", ["glyphs", "pairs", "many"])
@pytest.mark.parametrize("size", SIZES)
def test_a_scene_is_its_larger_self_averaged(task: str, size: tuple[int, int]) -> None:
    """Masks exactly. Images up to rounding (mean 0.25) and to pixels in which two objects' edges meet."""
    for index in range(20):
        scene = draw(task, "train", index, 3)
        small, large = render(scene, size), render(scene, (4 * size[0], 4 * size[1]))
        assert averaged(large.masks, 4) == pytest.approx(small.masks, abs=1e-5)
        assert large.boxes == pytest.approx(4 * small.boxes)
        difference = np.abs(averaged(large.image.transpose(2, 0, 1), 4) - small.image.transpose(2, 0, 1))
        assert difference.mean() < 0.75
        # Without a stroke under it an object's edge is exact up to rounding, clipping and the slope of its colour.
        alone = dataclasses.replace(scene, strokes=())
        small, large = render(alone, size), render(alone, (4 * size[0], 4 * size[1]))
        difference = np.abs(averaged(large.image.transpose(2, 0, 1), 4) - small.image.transpose(2, 0, 1))
        # Nor do shapes of `many` that hide each other have edges of their own.
        assert task == "many" or difference.max() < 8
        assert difference.mean() < 0.5


DIGEST = """
import hashlib
from sightline.data.scenes.draw import draw
from sightline.data.scenes.render import render
found = hashlib.sha256()
for task, split, size in (("glyphs", "train", (32, 32)), ("pairs", "test", (31, 77)), ("glyphs", "test", (130, 90))):
    for index in range(12):
        found.update(render(draw(task, split, index, 9), size).image.tobytes())
"""


def test_rendering_is_the_same_in_another_process_and_needs_nothing_heavy() -> None:
    here: dict[str, Any] = {}
    exec(DIGEST, here)
    code = f"import sys\n{DIGEST}\nheavy = {{'matplotlib', 'torch', 'sklearn', 'scipy'}} & set(sys.modules)\n"
    code += "print(found.hexdigest(), heavy or 'light')"
    for number in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": number, "OPENBLAS_NUM_THREADS": number}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert run.stdout.split() == [here["found"].hexdigest(), "light"]


def test_held_out_fonts_are_in_no_other_split() -> None:
    glyphs = glyph_set()
    assert (len(glyphs.train_faces), len(glyphs.held_out_faces)) == (16, 5)
    for split in SPLITS["glyphs"]:
        faces = {draw("glyphs", split, index).objects[0].outline[0] for index in range(1000)}
        assert faces == set(glyphs.held_out_faces if split == "heldout_fonts" else glyphs.train_faces)


def test_no_two_scenes_of_any_split_or_seed_share_a_number() -> None:
    drawn: list[float] = []
    asked = [(task, split, 0) for task, splits in SPLITS.items() for split in splits]
    for task, split, seed in asked + [(task, "train", 1) for task in SPLITS]:
        for scene in (draw(task, split, index, seed) for index in range(500)):
            drawn += (scene.size, *scene.position, *scene.background.colour, scene.objects[0].rotation)
    assert len(set(drawn)) == len(drawn)
