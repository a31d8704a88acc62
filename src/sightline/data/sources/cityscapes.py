"""Cityscapes with its fine annotations: cityscapes:DIR."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sightline.data.paired import LabelMapping, SegmentationFiles, files_below
from sightline.data.skip_policy import Unreadable
from sightline.data.targets import IGNORE
from sightline.errors import InputError

# The id of each class that is scored, in the order of the trainIds; the other ids up to 33 are ignored (the table of
# labels that Cordts et al., "The Cityscapes Dataset", 2016, publish).
_IDS = {
    "road": 7, "sidewalk": 8, "building": 11, "wall": 12, "fence": 13, "pole": 17, "traffic light": 19,
    "traffic sign": 20, "vegetation": 21, "terrain": 22, "sky": 23, "person": 24, "rider": 25, "car": 26, "truck": 27,
    "bus": 28, "train": 31, "motorcycle": 32, "bicycle": 33,
}  # fmt: skip
_LAST_ID = 33
_IMAGE = "_leftImg8bit.png"
_TRAIN_IDS, _LABEL_IDS = "_gtFine_labelTrainIds.png", "_gtFine_labelIds.png"
# What the annotations hold besides.
_OTHERS = ("_gtFine_color.png", "_gtFine_instanceIds.png", "_gtFine_instanceTrainIds.png", "_gtFine_polygons.json")
_ROLES = {"train": "train", "test": "val"}


class Cityscapes(SegmentationFiles):
    """19 classes of pixels in streets.

    `DIR/leftImg8bit/{train,val}/CITY/*_leftImg8bit.png` with `DIR/gtFine/{train,val}/CITY/*_gtFine_labelTrainIds.png`:
    0 to 18 are the classes, 255 is `IGNORE`. Of an image that has no such map, `*_gtFine_labelIds.png` is read by the
    published table. `val` is the split `test`, either may be absent; the withheld labels of `test` are not read.
    """

    name: ClassVar[str] = "cityscapes"

    def __init__(self, root: str | Path) -> None:
        """Scan DIR; raises InputError where it is not as described, UnreadableDataError where it may not be read."""
        root, skipped = Path(root), list[Unreadable]()
        images, maps, endings = root / "leftImg8bit", root / "gtFine", (_TRAIN_IDS, _LABEL_IDS)
        parts = {
            folder: (
                files_below(images / folder, (_IMAGE,), skipped),
                files_below(maps / folder, endings, skipped, others=_OTHERS, first_wins=True),
            )
            for folder in _ROLES.values()
            if (images / folder).is_dir()
        }
        if not parts:
            raise InputError(f"{images}: no train or val in it (expected: leftImg8bit/{{train,val}}/CITY/*{_IMAGE})")
        ignored = sorted(set(range(_LAST_ID + 1)) - set(_IDS.values()))
        self._by_id = LabelMapping([*_IDS.values()], f"an id of Cityscapes, 0 to {_LAST_ID}", ignored)
        legend = LabelMapping(range(len(_IDS)), f"0 to {len(_IDS) - 1}, or {IGNORE}, which is ignored")
        super().__init__(root, parts, list(_IDS), legend, skipped, _ROLES)

    def legend_of(self, path: str) -> LabelMapping:
        """As `SegmentationFiles.legend_of`: by the name of the file."""
        return self._by_id if path.endswith(_LABEL_IDS) else self.legend
