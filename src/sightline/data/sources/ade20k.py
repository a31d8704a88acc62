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
_INFO = "objectInfo150.txt"


class ADE20K(SegmentationFiles):
    """150 classes of pixels (Zhou et al., "Scene Parsing through ADE20K Dataset", 2017).

    `DIR/images/{training,validation}/*.jpg` with `DIR/annotations/{training,validation}/*.png`, in which 0 is nothing
    (`IGNORE`) and 1 to 150 are the classes 0 to 149. Their names are those of `DIR/objectInfo150.txt` as they are
    written there, or where there is no such file "1" to "150". `validation` is the split `test`; either may be absent.
    """

    name: ClassVar[str] = "ade20k"

    def __init__(self, root: str | Path) -> None:
        """Scan the folder DIR.

        Raises:
            InputError: the folder is not as described.
            UnreadableDataError: a folder in it may not be read.
        """
        root, skipped, images = Path(root), list[Unreadable](), Path(root) / "images"
        parts = {
            folder: images_and_maps(images / folder, root / "annotations" / folder, skipped)
            for folder in _ROLES.values()
            if (images / folder).is_dir()
        }
        if not parts:
            raise InputError(f"{images}: no training or validation in it (expected: the folder ADEChallengeData2016)")
        legend = LabelMapping(range(1, _CLASSES + 1), f"0, which is ignored, or 1 to {_CLASSES}", ignored=[0])
        super().__init__(root, parts, _names(root / _INFO), legend, skipped, _ROLES)


def _names(path: Path) -> tuple[str, ...]:
    """Of the classes, in their order: the last column of a table with tabs, a header first."""
    if not path.exists():
        return tuple(map(str, range(1, _CLASSES + 1)))
    expected = f"a table with tabs, Idx and Name among its columns, {_CLASSES} classes in order"
    header, *lines = read_text(path, CONFIGURATION, expected).rstrip().splitlines() or [""]
    columns = [one.strip() for one in header.split("\t")]
    if not {"Idx", "Name"} <= set(columns) or len(lines) != _CLASSES:
        raise InputError(f"{path}: {len(lines)} lines below {header[:80]!r} (expected: {expected})")
    names = []
    for number, line in enumerate(lines, start=1):
        row = dict(zip(columns, (one.strip() for one in line.split("\t")), strict=False))
        if row.get("Idx") != str(number) or not row.get("Name"):
            raise InputError(f"{path}:{number + 1}: {line[:80]!r} (expected: class {number} and its name)")
        names.append(row["Name"])
    return tuple(names)
