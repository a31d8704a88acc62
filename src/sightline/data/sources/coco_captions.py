"""COCO's captions: coco-captions:DIR."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from sightline.data.annotated import path_below
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import NO_LABEL
from sightline.data.labelled import ClassificationFiles, captions_in
from sightline.errors import InputError
from sightline.io.read import ROWS, read_json

_FOLDERS = {"train": "train2017", "val": "val2017"}


class CocoCaptions(ClassificationFiles):
    """Images with about five captions each (Chen et al., "Microsoft COCO Captions", 2015), or what is written so.

    `DIR/annotations/captions_{train,val}2017.json` with the images in `DIR/train2017` and `DIR/val2017`. `val2017` is
    the split `test`; either may be absent.
    """

    name: ClassVar[str] = "coco-captions"
    provides = ("captions",)

    def __init__(self, root: str | Path) -> None:
        """Read the annotations in a folder; raises InputError where there are none, or they are not as described."""
        root, found = Path(root), dict[tuple[str, Path], list[Any]]()
        self._places = {split: root / own for split, own in _FOLDERS.items()}
        for split, folder in self._places.items():
            if (file := root / "annotations" / f"captions_{folder.name}.json").exists():
                found |= {(split, path): said for path, said in _captions(file, folder).items()}
        if not found:
            raise InputError(f"{root}: no annotations/captions_train2017.json or captions_val2017.json of images in it")
        names = [f"{split}/{path.relative_to(root).as_posix()}" for split, path in found]
        listing = ImageIndex.of_files(names, [path for _, path in found])
        captions = list(map(captions_in, found.values()))
        super().__init__(root, (), listing, [NO_LABEL] * len(names), captions=captions, needs_captions=True)

    def _leave_out_twins(self) -> None:
        """Splits that were published stay as they are."""


def _captions(file: Path, folder: Path) -> dict[Path, list[Any]]:
    """Each image of a file of annotations, and what that says of it."""
    said = read_json(file, "COCO's captions", most=ROWS)
    try:
        paths = {one["id"]: path_below(folder, one["file_name"]) for one in said["images"]}
        found: dict[Any, list[Any]] = {path: [] for path in paths.values() if path is not None}
        if len(found) < len(said["images"]):
            raise InputError(f"{file}: {len(found)} of {len(said['images'])} images have an id and a file of their own")
        for one in said["annotations"]:
            found[paths[one["image_id"]]].append(one["caption"])
    except (LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: {type(error).__name__} {error} (expected: COCO's captions)") from None
    return found
