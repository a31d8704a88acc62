"""Any images of which nothing is said: images:DIR."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sightline.data.folders import split_folders
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import IMAGE_SUFFIXES, images_below
from sightline.data.skip_policy import Unreadable
from sightline.data.stored import FileSource
from sightline.data.targets import Target
from sightline.errors import InputError


class Images(FileSource):
    """Images in `DIR/SPLIT/` at any depth, in the order of their paths, for tasks that need no labels.

    SPLIT is as `imagefolder` has it, `val` being `test` where there is no `test`. Of a DIR without such a folder all
    images, at any depth, are `train` (`,minival=0.01` holds some of them out). An image that `train` holds too is left
    out of the splits that measure.
    """

    name: ClassVar[str] = "images"
    provides: tuple[str, ...] = ()
    reduced: ClassVar[bool] = True

    def __init__(self, root: str | Path) -> None:
        """Scan DIR; raises InputError where it is not as described, UnreadableDataError where it may not be read."""
        root, skipped = Path(root), list[Unreadable]()
        if not root.is_dir():
            raise InputError(f"{root}: no such folder (expected: images in it, or SPLIT/images)")
        self.task, self.classes, self._places = "images", (), split_folders(root, "train", skipped)
        found = {split: sorted(images_below(folder, skipped)) for split, folder in self._places.items()}
        names = list[str]()
        for split, paths in found.items():
            folder = self._places[split]
            if not paths:
                raise InputError(f"{folder}: no images in it (expected: files ending in {', '.join(IMAGE_SUFFIXES)})")
            names += [f"{split}/{Path(path).relative_to(folder).as_posix()}" for path in paths]
        super().__init__(root, ImageIndex.of_files(names, [path for paths in found.values() for path in paths]))
        self.skipped = tuple(skipped)
        self._leave_out_twins()

    def target(self, row: int, size: tuple[int, int]) -> Target:
        return Target()
