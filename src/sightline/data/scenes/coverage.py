"""The exact part of each pixel that a polygon covers."""

from __future__ import annotations

import numpy as np


def coverage(start: np.ndarray, end: np.ndarray, height: int, width: int) -> np.ndarray:
    """How much of each pixel lies inside closed contours.

    Each edge is cut where it crosses a pixel border; a piece adds its signed area to the pixel that it lies in and its
    height to all pixels to the right, so that a running sum along the rows gives areas without sampling anything.

    Args:
        start: float64 [edges, 2], (y, x) in pixels, y in 0..height and x in 0..width.
        end: float64 [edges, 2]; the edges together form closed contours that do not cross, holes turning the other way.
        height: rows.
        width: columns.

    Returns:
        float64 [height, width] in 0..1.
    """
    y0, x0, y1, x1 = _cut(start[:, 0], start[:, 1], end[:, 0], end[:, 1])
    x0, y0, x1, y1 = _cut(x0, y0, x1, y1)
    middle = (x0 + x1) * 0.5
    column = np.floor(middle)
    rise = y1 - y0
    # One column more for what goes to the right of the last, one row more for edges along the lower border.
    stride = width + 2
    cell = (np.floor((y0 + y1) * 0.5) * stride + column).astype(np.int64)
    beyond = rise * (middle - column)
    cells = (height + 1) * stride
    areas = np.bincount(cell, rise - beyond, cells)
    areas[1:] += np.bincount(cell, beyond, cells - 1)
    areas = areas.reshape(height + 1, stride)[:height, : width + 1]
    return np.clip(np.cumsum(areas, axis=1)[:, :width], 0.0, 1.0)


def _cut(
    a0: np.ndarray, b0: np.ndarray, a1: np.ndarray, b1: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The edges (a0, b0) to (a1, b1), each float64 [edges], cut at every whole number of the first coordinate."""
    falling = a1 < a0
    first = np.where(falling, np.ceil(a0) - 1, np.floor(a0) + 1)
    last = np.where(falling, np.floor(a1) + 1, np.ceil(a1) - 1)
    step = np.where(falling, -1.0, 1.0)
    cuts = np.maximum((last - first) * step + 1, 0).astype(np.int64)
    if not cuts.any():
        return a0, b0, a1, b1
    stops = np.cumsum(cuts + 1)
    starts = stops - cuts - 1
    edge = np.repeat(np.arange(len(a0)), cuts + 1)
    # The n-th piece of an edge begins at its (n - 1)-th cut; the first one is put right below.
    part_a0 = (first - step * (starts + 1))[edge] + step[edge] * np.arange(len(edge))
    slope = (b1 - b0) / np.where(cuts > 0, a1 - a0, 1.0)
    part_b0 = b0[edge] + (part_a0 - a0[edge]) * slope[edge]
    part_a0[starts], part_b0[starts] = a0, b0
    part_a1, part_b1 = np.empty_like(part_a0), np.empty_like(part_b0)
    part_a1[:-1], part_b1[:-1] = part_a0[1:], part_b0[1:]
    part_a1[stops - 1], part_b1[stops - 1] = a1, b1
    return part_a0, part_b0, part_a1, part_b1
