"""Where the outlines of a scene's objects lie."""

from __future__ import annotations

import math

import numpy as np

from sightline.data.scenes.description import Scene, SceneObject
from sightline.data.scenes.outlines import outline


def object_points(item: SceneObject) -> tuple[np.ndarray, np.ndarray]:
    """An object's outline, made wider, sheared, turned and scaled.

    Returns:
        float64 [points, 2], (y, x) in shorter sides of the image, relative to the centre of its upright box, and
        float64 [2], the (height, width) of that box.
    """
    turn = math.radians(item.rotation)
    sin, cos = math.sin(turn), math.cos(turn)
    wide = 1.0 + item.aspect
    matrix = np.array([[cos - sin * item.shear, -sin * wide], [sin + cos * item.shear, cos * wide]])
    # Not `@`: a BLAS may round differently with another number of threads.
    points = np.einsum("pj,ij->pi", outline(item.outline).points, matrix)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = item.size / (high - low).max()
    return (points - (low + high) * 0.5) * scale, (high - low) * scale


def placed_points(scene: Scene, image_size: tuple[int, int]) -> tuple[list[np.ndarray], np.ndarray]:
    """The outlines of all objects in an image.

    Args:
        scene: the scene.
        image_size: (height, width) in pixels.

    Returns:
        For each object float64 [points, 2], (y, x) in pixels from the top left corner, and float64 [objects, 4], the
        boxes (y0, x0, y1, x1) in pixels.
    """
    shorter = min(image_size)
    shapes = [object_points(item) for item in scene.objects]
    offsets = np.array(scene.offsets)
    halves = np.array([extent for _, extent in shapes]) * 0.5
    low, high = (offsets - halves).min(axis=0), (offsets + halves).max(axis=0)
    room = np.array(image_size) / shorter - (high - low)
    centres = offsets + (np.array(scene.position) * room - low)
    placed = [(points + centre) * shorter for (points, _), centre in zip(shapes, centres, strict=True)]
    return placed, np.concatenate([centres - halves, centres + halves], axis=1) * shorter
