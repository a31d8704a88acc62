"""A folder of images with one folder a class: imagefolder:DIR."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sightline.data.image_list import scan_class_folders
from sightline.data.labelled import ClassificationFiles


class ImageFolder(ClassificationFiles):
    """Images in `DIR/SPLIT/CLASS/`, at any depth below CLASS, in the order of their paths.

    SPLIT is `train`, `minival`, `val` or `test`, or another name of those, in any case (`folders`). The splits are
    called `train`, `minival` and `test` as everywhere: `val` is `test` where there is no `test` folder, else `minival`
    where there is no `minival` folder, and can be asked for by its own name too. A DIR that holds class folders
    directly is one split, `test`; with `,test=0.2` behind it a fifth of it is, and the rest is `train`. A folder of
    such a name that holds images directly, beside others that do, is a class. One class is enough to evaluate; a
    `train` split needs two. Hidden files and unknown extensions are passed over, and listed in `skipped`.
    """

    name: ClassVar[str] = "imagefolder"

    def __init__(self, root: str | Path) -> None:
        """Scan DIR; raises InputError where it is not as described, UnreadableDataError where it may not be read."""
        self.remembered_as = root = Path(root)
        classes, listing, labels, self.skipped, self._places = scan_class_folders(root)
        super().__init__(root, classes, listing, labels)
