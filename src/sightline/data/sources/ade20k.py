"""ADE20K as the scene parsing challenge has it: ade20k:DIR, where DIR is ADEChallengeData2016."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sightline.data.paired import LabelMapping, SegmentationFiles, images_and_maps
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError
from sightline.io.read import CONFIGURATION, read_text

_CLASSES = 150
_ROLES = {"train": "training", "test": "validation"}


class ADE20K(SegmentationFiles):
    """150 classes of pixels (Zhou et al., "Scene Parsing through ADE20K Dataset", 2017).

    `DIR/images/{training,validation}/*.jpg` with `DIR/annotations/{training,validation}/*.png`, in which 0 is nothing
    (`IGNORE`) and 1 to 150 are the classes 0 to 149. Their names are those of `DIR/objectInfo150.txt` as they are
    written there, or where there is no such file "1" to "150". `validation` is the split `test`; either may be absent.
    """

    name: ClassVar[str] = "ade20k"

    def __init__(self, root: str | Path) -> None:
        """Scan DIR; raises InputError where it is not as described, UnreadableDataError where it may not be read."""
        root, skipped = Path(root), list[Unreadable]()
        parts = {
            folder: images_and_maps(root / "images" / folder, root / "annotations" / folder, skipped)
            for folder in _ROLES.values()
            if (root / "images" / folder).is_dir()
        }
        if not parts:
            raise InputError(f"{root / 'images'}: no training or validation in it (expected: ADEChallengeData2016)")
        legend = LabelMapping(range(1, _CLASSES + 1), f"0, which is ignored, or 1 to {_CLASSES}", ignored=[0])
        super().__init__(root, parts, _names(root / "objectInfo150.txt"), legend, skipped, _ROLES)


def _names(path: Path) -> tuple[str, ...]:
    """Of the classes, in their order: a column of a table with tabs, a header first."""
    numbers = tuple(map(str, range(1, _CLASSES + 1)))
    if not path.exists():
        return numbers
    expected = f"a table with tabs, Idx and Name among its columns, {_CLASSES} classes in order"
    lines = read_text(path, CONFIGURATION, expected).rstrip().splitlines() or [""]
    header, *cells = ([one.strip() for one in line.split("\t")] for line in lines)
    rows = [dict(zip(header, line, strict=False)) for line in cells]
    names = tuple(row.get("Name", "") for row in rows)
    if tuple(row.get("Idx") for row in rows) != numbers or not all(names):
        raise InputError(f"{path}: {len(rows)} classes (expected: {expected})")
    return names
