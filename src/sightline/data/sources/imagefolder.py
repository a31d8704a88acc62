"""A folder of images with one folder a class: imagefolder:DIR."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sightline.data.folders import folders_in
from sightline.data.image_list import scan_class_folders
from sightline.data.labelled import ClassificationFiles
from sightline.data.splits import split_called, splits_among


class ImageFolder(ClassificationFiles):
    """Images in `DIR/SPLIT/CLASS/`, at any depth below CLASS, in the order of their paths.

    SPLIT is `train`, `minival`, `val` or `test`, or another name of those, in any case (`splits`). The splits are
    called `train`, `minival` and `test` as everywhere: `val` is `test` where there is no `test` folder, else `minival`
    where there is no `minival` folder, and can be asked for by its own name too. A DIR that holds class folders
    directly is one split, `test`: it can be evaluated on, not trained on. A folder of such a name that holds images
    directly, beside others that do, is a class. One class is enough to evaluate; a `train` split needs two. Hidden
    files and unknown extensions are passed over, and listed in `skipped`.
    """

    name: ClassVar[str] = "imagefolder"

    def __init__(self, root: str | Path) -> None:
        """Scan DIR; raises InputError where it is not as described, UnreadableDataError where it may not be read."""
        classes, listing, labels, self.skipped, self._places = scan_class_folders(Path(root))
        super().__init__(Path(root), classes, listing, labels)

    @property
    def _remembered_as(self) -> Path:
        return self.root

    def _hint(self, split: str) -> str:
        # A split of a data set was named instead of the data set.
        if split_called(self.root.name) and "train" in splits_among(folders_in(self.root.parent), self.root.parent):
            return f"; did you mean imagefolder:{self.root.parent}?"
        return "; to train, put class folders into DIR/train" if split == "train" else ""

    def files(self, split: str) -> tuple[tuple[str, int], ...]:
        """(path, label) of each image of a split, in the order of the indices."""
        return tuple((self.listing.paths[row], self.labels[row]) for row in self.rows_of(split))
