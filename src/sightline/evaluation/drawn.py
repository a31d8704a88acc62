"""What some answers look like beside what is true: pictures that rows name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from sightline.evaluation.predict import BatchOutputs
from sightline.io.atomic import write_out
from sightline.models import Model
from sightline.results.rows import INFERENCE, ResultRow
from sightline.tasks.base import Task
from sightline.tasks.drawing import as_png, sheet
from sightline.tokens.patchify import Patchifier

IMAGES = 4
"""Of a split at a size, so many are drawn."""
_SIDE = 224
_LEAST = 96
_KINDS = ("image", "true", "said")


class Drawing:
    """The first images of one measurement: each as it is, with what is true of it, and with what the model says."""

    def __init__(self, task: Task, patchifier: Patchifier) -> None:
        self._task, self._patchifier = task, patchifier
        self._pictures: list[tuple[str, Image.Image]] = []

    @classmethod
    def of(cls, model: Model, task: Task) -> Drawing | None:
        """None for a task that draws nothing."""
        draws = type(task).comparison_images is not Task.comparison_images
        return cls(task, model.patch_embed.patchifier) if draws else None

    def add(self, one: BatchOutputs) -> list[tuple[str, Image.Image]]:
        """Draw images of a batch of one grid, as long as there are too few; what is drawn, and of what kind it is."""
        layout, each = one.batch.layout, self._task.split_outputs(one.outputs, one.batch.layout)
        fresh: list[tuple[str, Image.Image]] = []
        for number in range(min(len(one.batch), IMAGES - len(self._pictures) // len(_KINDS))):
            pixels = self._patchifier.unpatchify(
                one.batch.inputs[number : number + 1].float(), layout.segments[0].grid
            )[0]
            image = pixels.round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
            shown = self._task.comparison_images(each[number], one.batch.targets, number, np.ascontiguousarray(image))
            fresh += list(zip(_KINDS, map(_at_a_size, shown), strict=True))
        self._pictures += fresh
        return fresh

    def put(self, drawn: Sequence[tuple[str, Image.Image]]) -> None:
        """What another one drew of the next images, as long as there are too few: each draws its own first ones, and
        so the first of all are among them."""
        self._pictures = (self._pictures + list(drawn))[: IMAGES * len(_KINDS)]

    def sheet(self) -> Image.Image | None:
        """All of them, and what the colours mean."""
        columns = 2 * len(_KINDS)
        return sheet(self._pictures, self._task.color_key(), columns) if self._pictures else None


def picture_name(folder: str, row: ResultRow) -> str:
    """Of the picture of a measurement, below the folder of its rows: one for each of what rows tell apart."""
    parts = [row.data, row.split, row.size_label, str(row.slices.get(INFERENCE, ""))]
    told = "_".join(filter(None, (re.sub(r"[^0-9A-Za-z.,-]+", "_", part).strip("_.") for part in parts)))
    # A folder's path, or words of many windows, may be longer than a file's name.
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
    return f"{folder}/{told[-80:]}_{digest}.png"


def write_pictures(rows: Sequence[ResultRow], pictures: Mapping[str, Image.Image], folder: Path) -> None:
    """Write what rows name into the folder of their file; raises StorageError where that cannot be done."""
    for name in dict.fromkeys(row.picture for row in rows if row.picture):
        write_out(folder / name, as_png(pictures[name]))


def _at_a_size(picture: Image.Image) -> Image.Image:
    """As large as can be looked at: small ones by whole pixels, large ones made smaller."""
    times = -(-_LEAST // max(picture.size))
    if times > 1:
        return picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)
    picture = picture.copy()
    picture.thumbnail((_SIDE, _SIDE))
    return picture
