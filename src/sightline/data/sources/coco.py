"""COCO's objects: coco:DIR."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sightline.data.annotated import DetectionFiles, file_in
from sightline.data.annotations import CocoFile
from sightline.errors import InputError

_FOLDER_OF = {"train": "train2017", "test": "val2017"}


class COCO(DetectionFiles):
    """Objects in everyday scenes (Lin et al., "Microsoft COCO", 2014), and any data set that is written so.

    `DIR/annotations/instances_{train,val}2017.json` with the images in `DIR/train2017` and `DIR/val2017`. Boxes are
    (x, y, width, height) there and (y0, x0, y1, x1) here; categories, whose ids have holes, are `things` in the order
    of their ids. `val2017` is the split `test`; either may be absent. A file of annotations may have 2 GiB:
    all of it is in memory while it is read, what it says as columns of numbers from then on.
    """

    name: ClassVar[str] = "coco"

    def __init__(self, root: str | Path) -> None:
        """Read the annotations in DIR.

        Raises:
            InputError: the folder or a file of annotations is not as described; one line with the file and the place.
        """
        root = Path(root)
        parts = {}
        for own in _FOLDER_OF.values():
            path = root / "annotations" / f"instances_{own}.json"
            if path.exists():
                said = CocoFile(path)
                parts[own] = (said, [file_in(said, at, root / own, name) for at, name in enumerate(said.files)])
        if not parts:
            raise InputError(f"{root}: no annotations/instances_train2017.json or instances_val2017.json in it")
        splits = {split: own for split, own in _FOLDER_OF.items() if own in parts}
        super().__init__(root, parts, {**splits, **{own.removesuffix("2017"): own for own in parts}})
