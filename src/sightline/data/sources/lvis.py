"""LVIS: objects of many classes, of which not all are said of each image: lvis:DIR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from sightline.data.annotated import DetectionFiles, path_below
from sightline.data.targets import Objects

_FOLDERS = ("train2017", "val2017", "test2017")


class LVIS(DetectionFiles):
    """Objects of 1,203 classes in COCO's images (Gupta et al., "LVIS", 2019, section 2.2: a federated data set).

    `DIR/lvis_v1_{train,val}.json`, with the images in COCO's folders: the last two parts of an image's `coco_url` say
    which is where, as `DIR/train2017/000000000009.jpg`. Of an image, `neg_category_ids` are classes that are not there
    (`Objects.negative_classes`), `not_exhaustive_category_ids` those of which not every object is said
    (`non_exhaustive_classes`); of a class in neither list and without an object, nothing is known. `val` is the split
    `test`; either may be absent.
    """

    name: ClassVar[str] = "lvis"
    annotation_files: ClassVar[Mapping[str, str]] = {own: f"lvis_v1_{own}.json" for own in ("train", "val")}
    roles: ClassVar[Mapping[str, str]] = {"train": "train", "test": "val"}
    file_key: ClassVar[str] = "coco_url"
    whole_folders: ClassVar[bool] = False

    def image_path(self, root: Path, own: str, name: str) -> Path | None:
        folder, _, file = "/".join(name.split("/")[-2:]).partition("/")
        return path_below(root / folder, file) if folder in _FOLDERS else None

    def target(self, row: int, size: tuple[int, int]) -> Objects:
        said = super().target(row, size)
        # Without the list nothing is said of any other class.
        return replace(said, negative_classes=said.negative_classes or ())
