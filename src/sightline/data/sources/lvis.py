"""LVIS: objects of many classes, of which not all are said of each image: lvis:DIR."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sightline.data.annotated import DetectionFiles, file_in
from sightline.data.annotations import CocoFile
from sightline.errors import InputError

_FILE_OF = {"train": "train", "test": "val"}
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
    whole_folders: ClassVar[bool] = False

    def __init__(self, root: str | Path) -> None:
        """Read the annotations in DIR.

        Raises:
            InputError: the folder or a file of annotations is not as described; one line with the file and the place.
        """
        root = Path(root)
        parts = {}
        for own in _FILE_OF.values():
            path = root / f"lvis_v1_{own}.json"
            if path.exists():
                said = CocoFile(path, file_key="coco_url")
                # A federated data set without the list says nothing of any other class.
                said.absent = [[] if one is None else one for one in said.absent]
                parts[own] = (said, [_file(root, said, at, url) for at, url in enumerate(said.files)])
        if not parts:
            raise InputError(f"{root}: no lvis_v1_train.json or lvis_v1_val.json in it")
        splits = {split: own for split, own in _FILE_OF.items() if own in parts}
        super().__init__(root, parts, {**splits, **{own: own for own in parts}})


def _file(root: Path, said: CocoFile, number: int, url: str) -> Path:
    folder, _, name = "/".join(url.split("/")[-2:]).partition("/")
    if folder not in _FOLDERS:
        expected = f"an address that ends in one of {', '.join(_FOLDERS)} and a file"
        raise InputError(f"{said.path}: images[{number}]: coco_url {url[:80]!r} (expected: {expected})")
    return file_in(said, number, root / folder, name)
