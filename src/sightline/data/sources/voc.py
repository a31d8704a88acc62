"""Pascal VOC's segmentation: voc:DIR, where DIR is a year's, as VOCdevkit/VOC2012."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sightline.data.paired import Files, LabelMapping, SegmentationFiles
from sightline.data.targets import IGNORE
from sightline.errors import InputError
from sightline.io.read import RECORD, read_text

NAMES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
_ROLES = {"train": "train", "test": "val"}


class VOC(SegmentationFiles):
    """21 classes of pixels, the first of which is the background (Everingham et al., "The Pascal Visual Object Classes
    Challenge", 2015).

    `DIR/ImageSets/Segmentation/{train,val}.txt` has the name of an image a line; each is `DIR/JPEGImages/NAME.jpg` with
    `DIR/SegmentationClass/NAME.png`, a palette image in which 0 to 20 are the classes and 255, drawn around objects, is
    `IGNORE`. `val` is the split `test`; either list may be absent.
    """

    name: ClassVar[str] = "voc"

    def __init__(self, root: str | Path) -> None:
        """Read the lists of the folder DIR; raises InputError where it is not as described, or a file is missing."""
        root, lists = Path(root), Path(root) / "ImageSets" / "Segmentation"
        paths = {folder: lists / f"{folder}.txt" for folder in _ROLES.values()}
        parts = {folder: _listed(root, path) for folder, path in paths.items() if path.exists()}
        if not parts:
            raise InputError(f"{lists}: no train.txt or val.txt (expected: a year's folder of VOCdevkit)")
        if both := sorted(set(parts.get("train", ({}, {}))[0]) & set(parts.get("val", ({}, {}))[0])):
            raise InputError(f"{lists / 'val.txt'}: {both[0]!r} is in train.txt too (expected: no image in two splits)")
        legend = LabelMapping(range(len(NAMES)), f"0 to {len(NAMES) - 1}, or {IGNORE}, which is ignored")
        super().__init__(root, parts, NAMES, legend, roles=_ROLES)


def _listed(root: Path, path: Path) -> tuple[Files, Files]:
    """The images and the maps that a list names, in its order."""
    expected = "the name of an image a line, each once"
    images, maps = dict[str, Path](), dict[str, Path]()
    for number, name in enumerate(map(str.strip, read_text(path, RECORD, expected).splitlines()), start=1):
        if name in images or "/" in name or "\0" in name:
            raise InputError(f"{path}:{number}: {name!r} (expected: {expected})")
        if name:
            images[name], maps[name] = root / "JPEGImages" / f"{name}.jpg", root / "SegmentationClass" / f"{name}.png"
            for file in (images[name], maps[name]):
                # A link that leads nowhere is said where headers are read.
                if not file.exists() and not file.is_symlink():
                    raise InputError(f"{file}: no such file (expected: {path.name} names it in line {number})")
    if not images:
        raise InputError(f"{path}: names no image (expected: {expected})")
    return images, maps
