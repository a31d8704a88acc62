"""A scene as pixels, at any height and width, drawn anew each time and never resampled."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from sightline.data.crops import check_image_size
from sightline.data.scenes.description import Background, Scene, SceneObject
from sightline.data.scenes.outlines import object_points, outline, placed_points


@dataclass(frozen=True, slots=True, eq=False)
class RenderedScene:
    """The pixels of a scene and where its objects are.

    Attributes:
        image: uint8 [height, width, 3], RGB.
        boxes: float64 [objects, 4], (y0, x0, y1, x1) in pixels, the smallest around the outline.
        masks: float32 [objects, height, width], the part of each pixel that the object covers, 0..1, before anything
            is drawn over it.
    """

    image: np.ndarray
    boxes: np.ndarray
    masks: np.ndarray

    def pixels(self, numbers: np.ndarray) -> np.ndarray:
        """What each pixel shows most of, uint8 [height, width]: 0 the background, else of `numbers`, one an object;
        an object before what it covers half of."""
        seen, rest = np.zeros_like(self.masks), np.ones(self.masks.shape[1:], np.float32)
        for mask, shown in zip(self.masks[::-1], seen[::-1], strict=True):
            shown[...] = rest * mask
            rest = rest * (1 - mask)
        most = seen.argmax(axis=0)
        there = np.take_along_axis(seen, most[None], axis=0)[0] >= rest
        return np.where(there, numbers[most], 0).astype(np.uint8)


def render(scene: Scene, image_size: tuple[int, int], unit: float | None = None) -> RenderedScene:
    """Draw a scene of (height, width) pixels; raises InputError where a side is below 1. Lengths scale with the shorter
    side, or with `unit`, at most that.

    Every pixel is the mean over its square: of the cosines and gradients in closed form, of the outlines by exact
    areas. So a scene at R pixels is a scene at 4R pixels averaged over 4 x 4, up to rounding and to pixels in which
    several edges meet.
    """
    check_image_size(image_size)
    height, width = image_size
    unit = unit or min(image_size)
    canvas = _without_objects(scene, image_size, unit)
    outlines, boxes = placed_points(scene, image_size, unit)
    masks = np.zeros((len(outlines), height, width), dtype=np.float32)
    for item, points, box, mask in zip(scene.objects, outlines, boxes, masks, strict=True):
        rows, columns, covered = _inside(points, outline(item.outline).following, image_size)
        mask[rows, columns] = covered
        _paint(canvas[rows, columns], covered, _object_colour(item, box, rows, columns))
    canvas *= 255.0
    canvas += 0.5
    return RenderedScene(image=canvas.astype(np.uint8), boxes=boxes, masks=masks)


def render_moving(scene: Scene, image_size: tuple[int, int], places: np.ndarray) -> np.ndarray:
    """As `render`, a scene of one object as a clip in which it alone moves: uint8 [frames, height, width, 3].

    The image has no edges: what leaves it on one side is seen on the other, so that an object may move for ever.

    Args:
        places: float64 [frames, 2], the centre (y, x) of the object's box in pixels, of each frame.
    """
    check_image_size(image_size)
    height, width = image_size
    unit = min(image_size)
    still = _without_objects(scene, image_size, unit)
    (item,) = scene.objects
    points, extent = object_points(item)
    points, half = points * unit, extent * unit / 2
    clip = np.empty((len(places), height, width, 3), np.uint8)
    for frame, place in zip(clip, np.mod(places, image_size), strict=True):
        canvas = still.copy()
        for shift in itertools.product((-height, 0, height), (-width, 0, width)):
            low, high = place + shift - half, place + shift + half
            if (high > 0).all() and (low < image_size).all():
                rows, columns, covered = _inside(points + place + shift, outline(item.outline).following, image_size)
                _paint(canvas[rows, columns], covered, _object_colour(item, np.concatenate([low, high]), rows, columns))
        frame[...] = canvas * 255.0 + 0.5
    return clip


def _paint(canvas: np.ndarray, covered: np.ndarray, colour: np.ndarray) -> None:
    """Mix a colour, float32 broadcastable to [h, w, 3], into the canvas where `covered`, float32 [h, w], says so."""
    canvas += (colour - canvas) * covered[:, :, None]


def _inside(points: np.ndarray, following: np.ndarray, image_size: tuple[int, int]) -> tuple[slice, slice, np.ndarray]:
    """The rows and columns of the image that an outline touches, and its coverage there, float32 [rows, columns]."""
    top, left = (math.floor(low) for low in points.min(axis=0).tolist())
    bottom, right = (math.ceil(high) for high in points.max(axis=0).tolist())
    local = points - (top, left)
    # An outline that touches a border may pass it by a rounding error; strokes may pass it by their width.
    covered = coverage(local, local[following], max(bottom - top, 1), max(right - left, 1))
    rows = slice(max(top, 0), max(min(bottom, image_size[0]), 0))
    columns = slice(max(left, 0), max(min(right, image_size[1]), 0))
    seen = covered[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
    return rows, columns, seen.astype(np.float32)


def _object_colour(item: SceneObject, box: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    """The colour of an object in each pixel of a part of the image, float32 [rows, columns, 3]."""
    y0, x0, y1, x1 = box.tolist()
    y = (np.arange(rows.start, rows.stop, dtype=np.float32) + np.float32(0.5 - (y0 + y1) / 2)) / (y1 - y0)
    x = (np.arange(columns.start, columns.stop, dtype=np.float32) + np.float32(0.5 - (x0 + x1) / 2)) / (x1 - x0)
    down, right = _direction(item.gradient_angle)
    along = (y * np.float32(down))[:, None] + (x * np.float32(right))[None, :]
    colour = along[:, :, None] * np.array(item.gradient, dtype=np.float32) + np.array(item.colour, dtype=np.float32)
    return np.minimum(colour, 1.0)


def _direction(angle: float) -> tuple[float, float]:
    """What y and x, each -0.5..0.5, are multiplied by so that the farthest corners lie at -0.5 and 0.5 along it."""
    sin, cos = math.sin(angle), math.cos(angle)
    reach = abs(sin) + abs(cos)
    return sin / reach, cos / reach


def _without_objects(scene: Scene, image_size: tuple[int, int], unit: float) -> np.ndarray:
    """The background with its strokes, float32 [height, width, 3] from 0 to 1."""
    canvas = _background(scene.background, *image_size, unit)
    for stroke in scene.strokes:
        start, end = np.array(stroke.start) * image_size, np.array(stroke.end) * image_size
        y, x = end - start
        across = np.array([-x, y]) / max(math.hypot(y, x), 1e-9) * (0.5 * stroke.width * unit)
        corners = np.stack([start - across, end - across, end + across, start + across])
        rows, columns, covered = _inside(corners, np.array([1, 2, 3, 0]), image_size)
        _paint(canvas[rows, columns], covered, np.array(stroke.colour, dtype=np.float32))
    return canvas


def _background(background: Background, height: int, width: int, shorter: float) -> np.ndarray:
    """Colour, gradient and gratings, float32 [height, width, 3], as a sum of products of a column and a row."""
    y = (np.arange(height) + 0.5) / shorter
    x = (np.arange(width) + 0.5) / shorter
    fy, fx = np.array([grating.frequency for grating in background.gratings]).T
    phase = np.array([grating.phase for grating in background.gratings])
    # The mean of a cosine over a pixel is its middle times a sinc for each side, so that nothing aliases.
    amplitude = np.array([grating.amplitude for grating in background.gratings])
    amplitude = amplitude * (np.sinc(fy / shorter) * np.sinc(fx / shorter))[:, None]
    turns_y = 2 * np.pi * fy[:, None] * y
    turns_x = 2 * np.pi * fx[:, None] * x + phase[:, None]
    down, right = _direction(background.gradient_angle)
    ramp_y = ((np.arange(height) + 0.5) / height - 0.5) * down
    ramp_x = ((np.arange(width) + 0.5) / width - 0.5) * right
    gradient, colour = np.array(background.gradient), np.array(background.colour)
    columns = np.concatenate([np.cos(turns_y), np.sin(turns_y), ramp_y[None], np.ones((1, height))])
    rows = np.concatenate(
        [
            np.cos(turns_x)[:, :, None] * amplitude[:, None],
            np.sin(turns_x)[:, :, None] * -amplitude[:, None],
            np.broadcast_to(gradient, (1, width, 3)),
            (ramp_x[:, None] * gradient + colour)[None],
        ]
    )
    canvas = np.einsum("kh,kv->hv", columns.astype(np.float32), rows.reshape(len(rows), width * 3).astype(np.float32))
    return np.maximum(canvas, 0.0).reshape(height, width, 3)


def coverage(start: np.ndarray, end: np.ndarray, height: int, width: int) -> np.ndarray:
    """How much of each pixel lies inside closed contours: float64 [height, width] in 0..1.

    Each edge is cut where it crosses a pixel border; a piece adds its signed area to the pixel that it lies in and its
    height to all pixels to the right, so that a running sum along the rows gives areas without sampling anything.

    Args:
        start, end: of the edges, float64 [edges, 2], (y, x) in pixels within the image; together they form closed
            contours that do not cross, holes turning the other way.
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
