"""COCO's objects: coco:DIR."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from sightline.data.annotated import DetectionFiles, path_below

_SPLITS = ("train2017", "val2017")


class COCO(DetectionFiles):
    """Objects in everyday scenes (Lin et al., "Microsoft COCO", 2014), and any data set that is written so.

    `DIR/annotations/instances_{train,val}2017.json` with the images in `DIR/train2017` and `DIR/val2017`. Boxes are
    (x, y, width, height) there and (y0, x0, y1, x1) here; categories, whose ids have holes, are `object_classes` in the
    order of their ids. `val2017` is the split `test`; either may be absent. A file of annotations may have 2 GiB: all
    of it is in memory while it is read, what it says as columns of numbers from then on.
    """

    name: ClassVar[str] = "coco"
    annotation_files: ClassVar[Mapping[str, str]] = {own: f"annotations/instances_{own}.json" for own in _SPLITS}
    roles: ClassVar[Mapping[str, str]] = {"train": "train2017", "test": "val2017", "val": "val2017"}

    def image_path(self, root: Path, own: str, name: str) -> Path | None:
        return path_below(root / own, name)
